#include "server/cluster/worker_processes.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/cluster/listener.h"
#include "server/process/child_process.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr auto kFirstBackoff = std::chrono::milliseconds(100);
constexpr auto kLongestBackoff = std::chrono::milliseconds(10'000);
// After SIGKILL: a process that waits for a dead file system does not end.
constexpr auto kKillLimit = std::chrono::seconds(2);
constexpr auto kReplaceLimit = std::chrono::seconds(5);
constexpr int kListens = 30;                             // in one silence_limit
constexpr auto kHealthyLife = std::chrono::seconds(30);  // resets the backoff

}  // namespace

std::vector<std::string> WorkerEnvironment(const WorkerProcessOptions& options, int worker) {
  if (!options.share_gpu) return {};
  return {absl::StrCat("NCCL_HOSTID=rank", worker),
          "NCCL_P2P_DISABLE=1",
          "NCCL_SHM_DISABLE=1",
          "NCCL_NET=Socket",
          "NCCL_SOCKET_IFNAME=lo",
          "NCCL_MAX_CTAS=1"};  // leaves the rest of the GPU to kernels
}

WorkerProcesses::WorkerProcesses(WorkerProcessOptions options)
    : options_(std::move(options)),
      slots_(options_.of_workers.size(), Slot{.backoff = kFirstBackoff}),
      supervisor_([this](const std::stop_token& stop) { Supervise(stop); }) {}

WorkerProcesses::~WorkerProcesses() = default;

void WorkerProcesses::Stop(std::chrono::milliseconds limit) {
  {
    const MutexLock lock(mutex_);
    stop_limit_ = limit;
  }
  supervisor_.request_stop();
  if (supervisor_.joinable()) supervisor_.join();
}

void WorkerProcesses::Supervise(const std::stop_token& stop) {
  if (options_.share_gpu) {
    spdlog::info(
        "some of {} workers share a GPU: each has its own NCCL_HOSTID, and their rings use sockets "
        "over loopback",
        slots_.size());
  }
  while (!stop.stop_requested()) {
    Listen();
    EndReplaced();
    for (int worker = 0; worker < static_cast<int>(slots_.size()); ++worker) {
      slots_[worker].pid < 0 ? StartDue(worker) : CheckAlive(slots_[worker]);
    }
    MutexLock lock(mutex_);
    wake_.wait_for(lock, stop, kPoll, []() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return false; });
  }
  StopAll();
}

void WorkerProcesses::Replace(int port) {
  const MutexLock lock(mutex_);
  replaced_.push_back(port);
}

// A worker's port is found once because it never changes.
void WorkerProcesses::Listen() {
  const Clock::time_point now = Clock::now();
  if (!options_.heard || now - listened_ < options_.silence_limit / kListens) return;
  // If this process was suspended, silence means nothing.
  const bool slept = now - listened_ > options_.silence_limit / 2;
  listened_ = now;
  const std::set<int> ports = options_.heard();
  for (Slot& slot : slots_) {
    if (slot.pid < 0 || slot.kill) continue;
    for (const int port : ports) {
      if (slot.port != 0) break;
      if (ListensAt(slot.pid, port)) slot.port = port;
    }
    if (slot.port == 0) continue;
    if (slept || ports.contains(slot.port)) slot.heard = now;
    if (now - slot.heard > options_.silence_limit) End(slot);
  }
}

void WorkerProcesses::EndReplaced() {
  std::vector<int> ports;
  {
    const MutexLock lock(mutex_);
    ports.swap(replaced_);
  }
  for (Slot& slot : slots_) {
    if (slot.pid < 0) continue;
    const bool replaced = std::ranges::any_of(
        ports, [&slot](int port) { return !slot.kill && ListensAt(slot.pid, port); });
    if (replaced) End(slot);
    if (slot.kill && Clock::now() > *slot.kill) kill(slot.pid, SIGKILL);
  }
}

void WorkerProcesses::End(Slot& slot) {
  spdlog::warn("worker process {} is replaced", slot.pid);
  kill(slot.pid, SIGTERM);
  slot.kill = Clock::now() + kReplaceLimit;
}

void WorkerProcesses::StartDue(int worker) {
  Slot& slot = slots_[worker];
  if (Clock::now() < slot.start) return;
  std::vector<std::string> arguments = options_.arguments;
  const std::vector<std::string>& own = options_.of_workers[worker];
  arguments.insert(arguments.end(), own.begin(), own.end());
  const auto pid = StartChild(options_.program, arguments, WorkerEnvironment(options_, worker));
  slot.started = Clock::now();
  if (pid.ok()) {
    slot.pid = *pid;
    spdlog::debug("started worker process {}", slot.pid);
  } else {
    spdlog::error("{}", std::string(pid.status().message()));
    slot.start = slot.started + slot.backoff;
    slot.backoff = std::min(2 * slot.backoff, kLongestBackoff);
  }
}

void WorkerProcesses::CheckAlive(Slot& slot) {
  std::string how;
  if (ChildRuns(slot.pid, how)) return;
  const Clock::time_point now = Clock::now();
  if (now - slot.started > kHealthyLife) slot.backoff = kFirstBackoff;
  spdlog::error("worker process {} ended with {}; another starts in {} ms", slot.pid, how,
                slot.backoff.count());
  ++restarts_;
  slot.pid = -1;
  slot.port = 0;
  slot.kill.reset();
  slot.start = now + slot.backoff;
  slot.backoff = std::min(2 * slot.backoff, kLongestBackoff);
}

void WorkerProcesses::StopAll() {
  Clock::time_point limit;
  {
    const MutexLock lock(mutex_);
    limit = Clock::now() + stop_limit_;
  }
  for (const Slot& slot : slots_) {
    if (slot.pid > 0) kill(slot.pid, SIGTERM);
  }
  bool killed = false;
  while (true) {
    bool any = false;
    for (Slot& slot : slots_) {
      std::string how;
      if (slot.pid > 0 && !ChildRuns(slot.pid, how)) slot.pid = -1;
      any = any || slot.pid > 0;
    }
    if (!any) return;
    if (killed && Clock::now() > limit + kKillLimit) break;
    if (!killed && Clock::now() > limit) {
      killed = true;
      for (const Slot& slot : slots_) {
        if (slot.pid > 0) kill(slot.pid, SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const Slot& slot : slots_) {
    if (slot.pid > 0) spdlog::warn("worker process {} was killed but has not ended", slot.pid);
  }
}

}  // namespace hilbert_ring::server
