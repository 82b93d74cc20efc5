// The bound of the queue, and its shares of callers.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "server/schedule/scheduler.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::StatusOr<Scheduler::Place> Scheduler::Enter(JobRequest request) {
  const MutexLock lock(mutex_);
  RETURN_IF_ERROR(closed_);
  jobs_.push_back({.request = std::move(request), .entered = time_.Now()});
  const auto job = std::prev(jobs_.end());
  given_.emplace(job->request.caller, GivenToNewcomers());
  Dispatch();
  const int64_t waiting = Waiting();
  if (!job->grant && waiting > max_waiting_ && !PutOneOut(job->request.caller)) {
    const std::string caller = job->request.caller;
    jobs_.erase(job);
    ForgetIdle(caller);
    return QueueFull(waiting - 1);
  }
  return Place(this, job);
}

absl::Status Scheduler::CheckRoom(const std::string& caller) const {
  const MutexLock lock(mutex_);
  return HasRoom(caller) ? absl::OkStatus() : QueueFull(Waiting());
}

absl::Status Scheduler::AwaitRoom(const std::string& caller, const JobStop& stop,
                                  Deadline deadline) {
  const auto may_enter = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_.ok() || HasRoom(caller);
  };
  MutexLock lock(mutex_);
  // The end of a backoff notifies no condition variable.
  while (stop.why().ok() && !may_enter() && time_.Now() < deadline) {
    time_.WaitUntil(moved_, lock, stop.token(), std::min(deadline, time_.Now() + kDispatchInterval),
                    may_enter);
  }
  return stop.why();
}

bool Scheduler::HasRoom(const std::string& caller) const {
  if (Waiting() < max_waiting_) return true;
  std::map<std::string, int64_t> of = WaitingByCaller();
  const int64_t own = of[caller] + 1;
  if (std::any_of(of.begin(), of.end(), [own](const auto& other) { return other.second > own; })) {
    return true;
  }
  const Clock::duration now = time_.Now().time_since_epoch();
  return std::any_of(seats_.begin(), seats_.end(), [now](const Seat& seat) {
    return seat.job == nullptr && seat.member->backs_off_until.load() <= now;
  });
}

int64_t Scheduler::Waiting() const {
  return std::count_if(jobs_.begin(), jobs_.end(),
                       [](const Ticket& job) { return !job.grant && job.put_out.ok(); });
}

std::map<std::string, int64_t> Scheduler::WaitingByCaller() const {
  std::map<std::string, int64_t> waiting;
  for (const Ticket& job : jobs_) {
    if (!job.grant && !job.again && job.put_out.ok()) ++waiting[job.request.caller];
  }
  return waiting;
}

// Removes the last job of the caller with most, unless `caller` has as many with its new job.
bool Scheduler::PutOneOut(const std::string& caller) {
  std::map<std::string, int64_t> waiting = WaitingByCaller();
  const auto most =
      std::max_element(waiting.begin(), waiting.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == waiting.end() || most->second <= waiting[caller]) return false;
  const auto last = std::find_if(jobs_.rbegin(), jobs_.rend(), [&](const Ticket& job) {
    return job.request.caller == most->first && !job.grant && !job.again && job.put_out.ok();
  });
  last->put_out = QueueFull(max_waiting_);
  last->changed->notify_all();
  moved_.notify_all();
  return true;
}

absl::Status Scheduler::QueueFull(int64_t waiting) const {
  return wire::ErrorOf(wire::reason::kQueueFull,
                       absl::StrCat("the queue is full: ", waiting, " jobs wait, the limit is ",
                                    max_waiting_, " (--max-queue)"));
}

}  // namespace hilbert_ring::server
