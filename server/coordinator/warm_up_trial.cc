#include "server/coordinator/warm_up_trial.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {
namespace {

// In a row. One may be chance, wrong rows in two jobs are the suspects' (suspects.h), and three are
// more than a second apart: longer than a worker's port or a connection takes to come up.
constexpr int kMostFailures = 3;
// Each job of a search may take a timeout: a network that is repaired meanwhile is to be noticed.
constexpr auto kSearchLimit = std::chrono::seconds(60);
// Of a job of a search, for its turn: a worker that has a caller's job for longer works.
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kRest = std::chrono::seconds(60);  // as long as suspects do at most
// Of what a probe is told: what a worker says may be long.
constexpr size_t kMostNamed = 16, kMostReasonBytes = 512;

bool IsAmong(const Members& workers, const std::shared_ptr<const Member>& worker) {
  return std::ranges::find(workers, worker) != workers.end();
}

bool AnyCame(const Members& before, const Members& now) {
  return !std::ranges::all_of(now,
                              [&before](const auto& worker) { return IsAmong(before, worker); });
}

// One line.
std::string ReasonOf(const absl::Status& status) {
  std::string reason(status.message().substr(0, kMostReasonBytes));
  std::ranges::replace_if(
      reason, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return reason;
}

}  // namespace

absl::Status WarmUpTrial::Try(size_t needed, const std::stop_token& stop) {
  while (true) {
    const Members live = live_();
    if (live.size() < needed) {
      return absl::UnavailableError(absl::StrCat(live.size(), " of ", needed, " are there"));
    }
    const Members workers = WithoutFailed(live, needed);
    tried_ = workers.size();
    const Outcome outcome = RunOverAll(live, workers, needed, stop);
    if (stop.stop_requested() || outcome.workers.empty()) return outcome.status;
    tried_ = outcome.workers.size();
    if (outcome.status.ok()) {
      Note(outcome.workers, {});
      return outcome.status;
    }
    const Verdict verdict = WhoFails(outcome, stop);
    if (stop.stop_requested()) return outcome.status;
    Note(verdict.judged, verdict.blamed);
    if (AreEnoughAlone(verdict, needed)) return absl::OkStatus();
    if (WithoutFailed(live, needed).size() >= workers.size()) return outcome.status;
  }
}

// All where too few are left: what failed for a time is to be found well again.
Members WarmUpTrial::WithoutFailed(const Members& live, size_t needed) const {
  Members left = live;
  for (const Failure& failure : FailedTooOften()) std::erase(left, failure.worker.lock());
  return left.size() < needed ? live : left;
}

// Until a worker comes, which may be free, it waits for those that have callers' jobs.
WarmUpTrial::Outcome WarmUpTrial::RunOverAll(const Members& live, const Members& workers,
                                             size_t needed, const std::stop_token& stop) const {
  return job_({.workers = workers,
               .least = needed,
               .give_up = [this, &live] { return AnyCame(live, live_()); }},
              stop);
}

WarmUpTrial::Outcome WarmUpTrial::RunProbe(const Members& workers,
                                           const std::stop_token& stop) const {
  std::optional<Deadline> limit;
  return job_({.workers = workers,
               .least = workers.size(),
               .give_up =
                   [this, &limit] {
                     if (!limit) limit = time_.Now() + kPatience;
                     return time_.Now() >= *limit;
                   }},
              stop);
}

bool WarmUpTrial::AreEnoughAlone(const Verdict& verdict, size_t needed) {
  const bool alone = needed == 1 && verdict.one_passed_alone && verdict.blamed.empty();
  alone_ = alone ? alone_ + 1 : 0;
  if (alone_ < kMostFailures) return false;
  spdlog::error(
      "the warm-up job over {} workers failed {} times, and nobody is to blame: workers pass it "
      "alone, of which one is enough (--min-workers)",
      tried_, alone_);
  return true;
}

// Those first that failed before, then those for which there was no time.
Members WarmUpTrial::InOrderOfSearch(Members workers) const {
  const MutexLock lock(mutex_);
  const auto failed = [this](const auto& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::ranges::any_of(
        failures_, [&worker](const Failure& failure) { return failure.worker.lock() == worker; });
  };
  const auto others = std::stable_partition(workers.begin(), workers.end(), failed);
  if (others != workers.end()) {
    const auto count = static_cast<size_t>(workers.end() - others);
    std::rotate(others, others + static_cast<std::ptrdiff_t>(searched_ % count), workers.end());
  }
  return workers;
}

WarmUpTrial::Verdict WarmUpTrial::WhoFails(const Outcome& failed, const std::stop_token& stop) {
  const Members& workers = failed.workers;
  if (workers.size() == 1) {
    return {.judged = workers, .blamed = {{.worker = workers.front(), .why = failed.status}}};
  }
  const Deadline limit = time_.Now() + kSearchLimit;
  Verdict verdict;
  for (const auto& worker : InOrderOfSearch(workers)) {
    if (stop.stop_requested()) return {};
    if (time_.Now() >= limit) break;
    Outcome alone = RunProbe({worker}, stop);
    if (alone.workers.empty()) continue;
    verdict.judged.push_back(worker);
    if (alone.status.ok()) {
      verdict.one_passed_alone = true;
    } else {
      verdict.blamed.push_back({.worker = worker, .why = std::move(alone.status)});
    }
  }
  const size_t judged = verdict.judged.size();
  searched_ = judged == workers.size() ? 0 : searched_ + judged - verdict.blamed.size();
  if (judged == workers.size() && verdict.blamed.empty()) {
    verdict.blamed = WhoFailsBesideOthers(failed, stop);
  }
  return verdict;
}

// Of two nobody can say which it is.
std::vector<WarmUpTrial::Blamed> WarmUpTrial::WhoFailsBesideOthers(
    const Outcome& failed, const std::stop_token& stop) const {
  const Deadline limit = time_.Now() + kSearchLimit;
  if (failed.workers.size() < 3) return {};
  for (const auto& worker : failed.workers) {
    if (stop.stop_requested() || time_.Now() >= limit) break;
    Members others = failed.workers;
    std::erase(others, worker);
    const Outcome without = RunProbe(others, stop);
    if (without.status.ok()) return {{.worker = worker, .why = failed.status}};
  }
  return {};
}

bool WarmUpTrial::HasLeft(const Failure& failure) {
  const auto worker = failure.worker.lock();
  return worker == nullptr || worker->departed.stop_requested();
}

// Who of the judged is not to blame begins anew.
void WarmUpTrial::Note(const Members& judged, const std::vector<Blamed>& blamed) {
  const MutexLock lock(mutex_);
  std::vector<Failure> before = std::move(failures_);
  failures_.clear();
  for (const Failure& failure : before) {
    if (!HasLeft(failure) && !IsAmong(judged, failure.worker.lock())) failures_.push_back(failure);
  }
  for (const Blamed& now : blamed) {
    Failure failure{
        .worker = now.worker, .address = now.worker->address, .times = 1, .why = ReasonOf(now.why)};
    if (HasLeft(failure)) continue;
    const auto known = std::ranges::find_if(
        before, [&now](const Failure& other) { return other.worker.lock() == now.worker; });
    if (known != before.end()) failure.times += known->times;
    failures_.push_back(failure);
    if (failure.times != kMostFailures) continue;
    spdlog::warn("worker {} failed its warm-up {} times: {}", failure.address, failure.times,
                 failure.why);
  }
}

std::vector<WarmUpTrial::Failure> WarmUpTrial::FailedTooOften() const {
  const MutexLock lock(mutex_);
  std::vector<Failure> failed = failures_;
  std::erase_if(failed, [this](const Failure& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto worker = failure.worker.lock();
    if (failure.times < kMostFailures || HasLeft(failure)) return true;
    return ready_ && worker->worked_at.load() > ready_->time_since_epoch();
  });
  return failed;
}

void WarmUpTrial::RestFailed() {
  const std::vector<Failure> failed = FailedTooOften();
  const Clock::time_point now = time_.Now();
  {
    const MutexLock lock(mutex_);
    ready_ = now;
  }
  for (const Failure& failure : failed) {
    const auto worker = failure.worker.lock();
    if (worker == nullptr) continue;
    worker->rests_until = now.time_since_epoch() + kRest;
    spdlog::error(
        "worker {} failed its warm-up {} times: others make the service ready, and it gets no jobs "
        "for {} s: {}",
        failure.address, failure.times, kRest.count(), failure.why);
  }
}

std::string WarmUpTrial::Failures() const {
  std::string lines;
  const std::vector<Failure> failed = FailedTooOften();
  for (size_t i = 0; i < std::min(failed.size(), kMostNamed); ++i) {
    absl::StrAppend(&lines, "worker ", failed[i].address, " failed its warm-up ", failed[i].times,
                    " times: ", failed[i].why, "\n");
  }
  if (failed.size() > kMostNamed) {
    absl::StrAppend(&lines, "and ", failed.size() - kMostNamed, " more workers\n");
  }
  return lines;
}

}  // namespace hilbert_ring::server
