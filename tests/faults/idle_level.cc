#include "tests/faults/idle_level.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr auto kMeasureFor = std::chrono::seconds(2);

// gRPC keeps a few threads and connections by recent load.
constexpr int kThreadSlack = 6;
constexpr int kDescriptorSlack = 6;

std::string Above(const char* what, pid_t pid, int now, int idle, int slack) {
  if (now <= idle + slack) return "";
  return absl::StrCat(what, " of process ", pid, ": ", now, ", idle ", idle, "; ");
}

}  // namespace

IdleLevel::IdleLevel(Cluster& cluster) : cluster_(cluster) {
  const Clock::time_point end = Clock::now() + kMeasureFor;
  while (Clock::now() < end) {
    const ProcessAccount now = AccountOf(cluster.coordinator());
    coordinator_.descriptors = std::max(coordinator_.descriptors, now.descriptors);
    coordinator_.threads = std::max(coordinator_.threads, now.threads);
    for (const pid_t pid : cluster.Workers()) {
      const ProcessAccount worker = AccountOf(pid);
      worker_descriptors_ = std::max(worker_descriptors_, worker.descriptors);
      worker_threads_ = std::max(worker_threads_, worker.threads);
    }
    std::this_thread::sleep_for(kPoll);
  }
}

std::string IdleLevel::LeftOver() const {
  std::string left;
  const auto described = cluster_.Describe();
  if (!described.ok()) return absl::StrCat("no state: ", described.status().ToString());
  if (described->jobs_running() > 0 || described->jobs_queued() > 0) {
    absl::StrAppend(&left, described->jobs_running(), " jobs run, ", described->jobs_queued(),
                    " wait; ");
  }
  for (const v1::ClusterWorker& worker : described->workers()) {
    if (worker.memory_used_bytes() != 0 || !worker.job_id().empty()) {
      absl::StrAppend(&left, worker.address(), " uses ", worker.memory_used_bytes(), " for job '",
                      worker.job_id(), "'; ");
    }
  }
  const ProcessAccount coordinator = AccountOf(cluster_.coordinator());
  left += Above("descriptors", cluster_.coordinator(), coordinator.descriptors,
                coordinator_.descriptors, kDescriptorSlack);
  left += Above("threads", cluster_.coordinator(), coordinator.threads, coordinator_.threads,
                kThreadSlack);
  left += Above("shared memories", cluster_.coordinator(), coordinator.shared_memories, 0, 0);
  const std::vector<pid_t> children = ChildrenOf(cluster_.coordinator());
  for (const pid_t pid : children) {
    if (AccountOf(pid).zombie) absl::StrAppend(&left, "process ", pid, " is a zombie; ");
  }
  const std::vector<pid_t> workers = cluster_.Workers();
  if (static_cast<int>(workers.size()) > cluster_.options().workers) {
    absl::StrAppend(&left, workers.size(), " worker processes; ");
  }
  for (const pid_t pid : workers) {
    const ProcessAccount worker = AccountOf(pid);
    left += Above("descriptors", pid, worker.descriptors, worker_descriptors_, kDescriptorSlack);
    left += Above("threads", pid, worker.threads, worker_threads_, kThreadSlack);
    left += Above("shared memories", pid, worker.shared_memories, 0, 0);
  }
  return left;
}

std::string IdleLevel::AwaitReturn(std::chrono::milliseconds limit) const {
  const Clock::time_point end = Clock::now() + limit;
  while (true) {
    std::string left = LeftOver();
    if (left.empty() || Clock::now() > end) return left;
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace hilbert_ring::testing
