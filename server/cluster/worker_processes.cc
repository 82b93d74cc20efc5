#include "server/cluster/worker_processes.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/process/child_process.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr auto kFirstDelay = std::chrono::milliseconds(100);
constexpr auto kLongestDelay = std::chrono::milliseconds(10'000);
// After SIGKILL: a process that waits for a dead file system does not end.
constexpr auto kKillLimit = std::chrono::seconds(2);
constexpr auto kReplaceLimit = std::chrono::seconds(5);
constexpr int kListens = 30;                             // in one silence_limit
constexpr auto kHealthyLife = std::chrono::seconds(30);  // resets the backoff

// "nvidia0", not "nvidiactl" or "nvidia-uvm".
bool NamesGpu(std::string_view file) {
  constexpr std::string_view kPrefix = "nvidia";
  return file.starts_with(kPrefix) && file.size() > kPrefix.size() &&
         std::all_of(file.begin() + kPrefix.size(), file.end(),
                     [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

}  // namespace

std::vector<WorkerPlacement> PlaceWorkers(int workers, const std::string& device, int gpus) {
  const bool on_gpus = device.starts_with("cuda:") || (device.starts_with("auto") && gpus > 0);
  std::vector<WorkerPlacement> placed(workers, WorkerPlacement{.device = device});
  if (!on_gpus) return placed;
  const bool spread = !GpuOrdinal(device).has_value();
  const int used = spread ? std::min(gpus, workers) : 1;
  for (int worker = 0; worker < workers; ++worker) {
    const int gpu = worker % used;
    const int workers_there = (workers - gpu - 1) / used + 1;
    if (spread) placed[worker].device = absl::StrCat("auto:", gpu);
    placed[worker].gpu_share = 1.0 / workers_there;
  }
  return placed;
}

int VisibleGpus(const std::filesystem::path& device_files, const char* cuda_visible_devices) {
  int gpus = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(device_files, error)) {
    if (NamesGpu(entry.path().filename().native())) ++gpus;
  }
  if (cuda_visible_devices == nullptr) return gpus;
  const std::vector<std::string> named =
      absl::StrSplit(cuda_visible_devices, ',', absl::SkipWhitespace());
  return std::min(gpus, static_cast<int>(named.size()));
}

bool ListensAt(pid_t pid, int port) {
  const std::string process = absl::StrCat("/proc/", pid);
  std::set<std::string> sockets;  // "socket:[inode]"
  std::error_code error;
  for (std::filesystem::directory_iterator file(process + "/fd", error), end; !error && file != end;
       file.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(file->path(), gone);
    if (!gone && target.starts_with("socket:")) sockets.insert(target);
  }
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream lines(process + table);
    std::string line;
    std::getline(lines, line);  // the columns' names
    while (std::getline(lines, line)) {
      // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
      std::istringstream columns(line);
      std::string column[10];
      for (std::string& text : column) columns >> text;
      const size_t colon = column[1].rfind(':');
      if (colon == std::string::npos || column[3] != "0A") continue;
      int64_t listens_at = 0;
      if (!absl::SimpleHexAtoi(column[1].substr(colon + 1), &listens_at)) continue;
      if (listens_at == port && sockets.contains(absl::StrCat("socket:[", column[9], "]"))) {
        return true;
      }
    }
  }
  return false;
}

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
      slots_(options_.of_workers.size(), Slot{.backoff = kFirstDelay}),
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
    slot.backoff = std::min(2 * slot.backoff, kLongestDelay);
  }
}

void WorkerProcesses::CheckAlive(Slot& slot) {
  std::string how;
  if (ChildRuns(slot.pid, how)) return;
  const Clock::time_point now = Clock::now();
  if (now - slot.started > kHealthyLife) slot.backoff = kFirstDelay;
  spdlog::error("worker process {} ended with {}; another starts in {} ms", slot.pid, how,
                slot.backoff.count());
  ++restarts_;
  slot.pid = -1;
  slot.port = 0;
  slot.kill.reset();
  slot.start = now + slot.backoff;
  slot.backoff = std::min(2 * slot.backoff, kLongestDelay);
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
