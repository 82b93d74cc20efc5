#include "server/coordinator/warm_up_trial.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {
namespace {

// In a row. One may be chance, wrong rows in two jobs are the suspects' (suspects.h), and three are
// more than a second apart: longer than a worker's port or a connection takes to come up.
constexpr int kMostFailures = 3;
// A job of each of many workers left out may take a timeout: a network that is repaired meanwhile
// is to be noticed.
constexpr auto kSearchLimit = std::chrono::seconds(60);
constexpr auto kRest = std::chrono::seconds(60);  // as long as suspects do at most
// Of what a probe is told: what a worker says may be long.
constexpr size_t kMostNamed = 16, kMostReasonBytes = 512;

bool IsAmong(const Members& workers, const std::shared_ptr<const Member>& worker) {
  return std::ranges::find(workers, worker) != workers.end();
}

bool HasLeft(const Member& worker) { return worker.departed.stop_requested(); }

// One line.
std::string ReasonOf(const absl::Status& status) {
  std::string reason(status.message().substr(0, kMostReasonBytes));
  std::ranges::replace_if(
      reason, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return reason;
}

}  // namespace

absl::Status WarmUpTrial::Try(const Members& live, size_t needed, const std::stop_token& stop) {
  Members workers = WithoutFailed(live, needed);
  while (true) {
    tried_ = workers.size();
    absl::Status status = job_(workers, stop);
    if (stop.stop_requested()) return status;
    const auto blamed = status.ok() ? std::vector<Blamed>() : WhoFails(workers, status, stop);
    if (stop.stop_requested()) return status;
    Note(workers, blamed);
    Members fewer = WithoutFailed(live, needed);
    if (status.ok() || fewer.size() >= workers.size()) return status;
    workers = std::move(fewer);
  }
}

// All where too few are left: what failed for a time is to be found well again.
Members WarmUpTrial::WithoutFailed(const Members& live, size_t needed) const {
  Members left = live;
  for (const Failure& failure : FailedTooOften()) std::erase(left, failure.worker);
  return left.size() < needed ? live : left;
}

std::vector<WarmUpTrial::Blamed> WarmUpTrial::WhoFails(const Members& workers,
                                                       const absl::Status& status,
                                                       const std::stop_token& stop) const {
  if (workers.size() == 1) return {{.worker = workers.front(), .why = status}};
  std::vector<Blamed> blamed;
  for (const auto& worker : workers) {
    if (stop.stop_requested()) return {};
    absl::Status alone = job_({worker}, stop);
    if (!alone.ok()) blamed.push_back({.worker = worker, .why = std::move(alone)});
  }
  return blamed.empty() ? WhoFailsBesideOthers(workers, status, stop) : blamed;
}

// Of two nobody can say which it is.
std::vector<WarmUpTrial::Blamed> WarmUpTrial::WhoFailsBesideOthers(
    const Members& workers, const absl::Status& status, const std::stop_token& stop) const {
  const Deadline limit = Clock::now() + kSearchLimit;
  if (workers.size() < 3) return {};
  for (const auto& worker : workers) {
    if (stop.stop_requested() || Clock::now() >= limit) break;
    Members others = workers;
    std::erase(others, worker);
    if (job_(others, stop).ok()) return {{.worker = worker, .why = status}};
  }
  return {};
}

// Who of the workers is not to blame begins anew.
void WarmUpTrial::Note(const Members& workers, const std::vector<Blamed>& blamed) {
  const MutexLock lock(mutex_);
  std::vector<Failure> before = std::move(failures_);
  failures_.clear();
  for (Failure& failure : before) {
    if (!HasLeft(*failure.worker) && !IsAmong(workers, failure.worker)) {
      failures_.push_back(std::move(failure));
    }
  }
  for (const Blamed& now : blamed) {
    if (HasLeft(*now.worker)) continue;
    const auto known = std::ranges::find(before, now.worker, &Failure::worker);
    const int times = known == before.end() ? 1 : known->times + 1;
    failures_.push_back({.worker = now.worker, .times = times, .why = ReasonOf(now.why)});
    if (times != kMostFailures) continue;
    spdlog::warn("worker {} failed its warm-up {} times: {}", now.worker->address, times,
                 failures_.back().why);
  }
}

std::vector<WarmUpTrial::Failure> WarmUpTrial::FailedTooOften() const {
  const MutexLock lock(mutex_);
  std::vector<Failure> failed = failures_;
  std::erase_if(failed, [](const Failure& failure) {
    return failure.times < kMostFailures || HasLeft(*failure.worker);
  });
  return failed;
}

void WarmUpTrial::RestFailed() const {
  for (const Failure& failure : FailedTooOften()) {
    failure.worker->rests_until = Clock::now().time_since_epoch() + kRest;
    spdlog::error(
        "worker {} failed its warm-up {} times: others make the service ready, and it gets no jobs "
        "for {} s: {}",
        failure.worker->address, failure.times, kRest.count(), failure.why);
  }
}

std::string WarmUpTrial::Failures() const {
  std::string lines;
  const std::vector<Failure> failed = FailedTooOften();
  for (size_t i = 0; i < std::min(failed.size(), kMostNamed); ++i) {
    absl::StrAppend(&lines, "worker ", failed[i].worker->address, " failed its warm-up ",
                    failed[i].times, " times: ", failed[i].why, "\n");
  }
  if (failed.size() > kMostNamed) {
    absl::StrAppend(&lines, "and ", failed.size() - kMostNamed, " more workers\n");
  }
  return lines;
}

}  // namespace hilbert_ring::server
