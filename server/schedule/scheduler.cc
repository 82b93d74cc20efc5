#include "server/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kExpressSeconds = 0.25;  // longest job on an express lane
constexpr double kLongestSeconds = 1e6;   // of a prediction

// Limits the messages of many small waiting jobs to one another's ends.
constexpr auto kFirstNews = std::chrono::milliseconds(100);
constexpr auto kNewsInterval = std::chrono::milliseconds(200);

Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(Seconds(std::min(seconds, kLongestSeconds)));
}

double WorkerSeconds(const JobSize& size) { return size.workers * size.seconds; }

bool IsShort(const JobSize& size, const Member& member) {
  return size.workers == 1 && size.SecondsOfOneThread(member) <= kExpressSeconds;
}

// A late job is taken to need a tenth of its time more.
Clock::time_point EndOf(Clock::time_point predicted, double seconds, Clock::time_point now) {
  return std::max(predicted, now + Duration(0.1 * seconds));
}

}  // namespace

// The least that a present caller was given, without running jobs. A newcomer then neither waits
// for time that others had before it came, nor takes that time itself.
double Scheduler::GivenToNewcomers() const {
  std::map<std::string, double> ended = given_;
  for (const Ticket& job : jobs_) {
    if (job.grant) ended[job.request.caller] -= WorkerSeconds(job.size);
  }
  const auto least = std::min_element(
      ended.begin(), ended.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return least == ended.end() ? 0 : least->second;
}

void Scheduler::Changed() {
  const MutexLock lock(mutex_);
  Dispatch();
}

void Scheduler::Close(absl::Status why) {
  const MutexLock lock(mutex_);
  closed_ = std::move(why);
  for (const Ticket& job : jobs_) job.changed->notify_all();
  moved_.notify_all();
}

int Scheduler::running() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(jobs_.begin(), jobs_.end(),
                                        [](const Ticket& job) { return job.grant.has_value(); }));
}

int Scheduler::waiting() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(Waiting());
}

int Scheduler::busy_workers() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(std::ranges::count_if(seats_, IsBusy));
}

double Scheduler::SecondsOfWork() const {
  const MutexLock lock(mutex_);
  const Clock::time_point now = time_.Now();
  double worker_seconds = 0;
  for (const Ticket& job : jobs_) {
    const double left = job.grant ? Seconds(EndOf(job.end, job.size.seconds, now) - now).count()
                                  : job.request.sizes.front().seconds;
    worker_seconds += left * (job.grant ? job.size.workers : job.request.sizes.front().workers);
  }
  return worker_seconds / static_cast<double>(std::max<size_t>(1, seats_.size()));
}

std::vector<Scheduler::Ticket*> Scheduler::InTurn(Clock::time_point now) {
  struct Turn {
    Ticket* job;
    double given, urgency;
  };
  std::vector<Turn> turns;
  for (Ticket& job : jobs_) {
    if (job.grant || job.waiting_for_workers || !job.put_out.ok()) continue;
    turns.push_back(
        {.job = &job,
         .given = given_[job.request.caller],
         .urgency = job.request.sizes.front().seconds - Seconds(now - job.entered).count()});
  }
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) {
    if (a.job->again != b.job->again) return a.job->again;
    if (a.given != b.given) return a.given < b.given;
    return a.urgency < b.urgency;
  });
  std::vector<Ticket*> waiting;
  waiting.reserve(turns.size());
  for (const Turn& turn : turns) waiting.push_back(turn.job);
  return waiting;
}

bool Scheduler::AnySeatIsFree() const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [](const Seat& seat) { return seat.job == nullptr || FreeLane(seat) > 0; });
}

int64_t Scheduler::JobsOnLanes(const Seat& seat) {
  return std::ranges::count_if(seat.express, [](const Ticket* job) { return job != nullptr; });
}

bool Scheduler::IsBusy(const Seat& seat) { return seat.job != nullptr || JobsOnLanes(seat) > 0; }

// 0: no express lane is free. A long job shares its worker with one other.
int Scheduler::FreeLane(const Seat& seat) {
  const auto free = std::find(seat.express.begin(), seat.express.end(), nullptr);
  if (free == seat.express.end()) return 0;
  const bool beside_long = seat.job != nullptr && !IsShort(seat.job->size, *seat.member);
  if (beside_long && JobsOnLanes(seat) > 0) return 0;
  return static_cast<int>(free - seat.express.begin()) + 1;
}

void Scheduler::Dispatch() {
  const Members live = live_();
  std::erase_if(seats_, [&](const Seat& seat) {
    return !IsBusy(seat) && std::find(live.begin(), live.end(), seat.member) == live.end();
  });
  for (const auto& member : live) {
    const bool there = std::any_of(seats_.begin(), seats_.end(),
                                   [&](const Seat& seat) { return seat.member == member; });
    if (!there) {
      seats_.push_back({.member = member,
                        .express = std::vector<const Ticket*>(
                            static_cast<size_t>(member->express_lanes), nullptr)});
    }
  }
  const Clock::time_point now = dispatched_ = time_.Now();
  std::vector<const Ticket*> tried;
  std::optional<Reserved> reserved;
  bool given = true;
  while (std::exchange(given, false) && AnySeatIsFree()) {
    for (Ticket* job : InTurn(now)) {
      if (std::find(tried.begin(), tried.end(), job) != tried.end()) continue;
      given = TryStart(*job, SeatsFor(*job, live), now, reserved);
      if (given) break;
      tried.push_back(job);
    }
  }
  moved_.notify_all();
}

std::vector<Scheduler::Seat*> Scheduler::SeatsFor(const Ticket& job, const Members& live) {
  std::vector<Seat*> seats;
  for (Seat& seat : seats_) {
    if (std::find(live.begin(), live.end(), seat.member) != live.end() &&
        std::find(job.without.begin(), job.without.end(), seat.member) == job.without.end() &&
        (!job.request.takes || job.request.takes(*seat.member))) {
      seats.push_back(&seat);
    }
  }
  return seats;
}

Scheduler::Start Scheduler::Earliest(const Ticket& job, const JobSize& size,
                                     const std::vector<Seat*>& seats, Clock::time_point now) const {
  std::vector<std::pair<Clock::time_point, Seat*>> free;
  for (Seat* seat : seats) {
    const int64_t bytes = size.BytesOn(*seat->member), limit = seat->member->memory_limit_bytes;
    if (limit < bytes) continue;
    Clock::time_point at = std::max(now, Clock::time_point(seat->member->backs_off_until.load()));
    const auto await = [&](const Ticket* other) {
      if (other != nullptr) at = std::max(at, EndOf(other->end, other->size.seconds, now));
    };
    await(seat->job);
    if (seat->bytes > limit - bytes) std::ranges::for_each(seat->express, await);
    free.push_back({at, seat});
  }
  const auto workers = static_cast<size_t>(size.workers);
  if (free.size() < workers) return {.at = Clock::time_point::max()};
  std::stable_sort(free.begin(), free.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Start start{.at = free[workers - 1].first};
  if (start.at > now) return start;
  for (size_t i = 0; i < workers; ++i) start.seats.push_back(free[i].second);
  return start;
}

// The first job that cannot start now reserves its time: later jobs start only if they end by then.
bool Scheduler::TryStart(Ticket& job, const std::vector<Seat*>& seats, Clock::time_point now,
                         std::optional<Reserved>& reserved) {
  const JobSize* best = nullptr;
  Start best_start;
  Clock::time_point best_end = Clock::time_point::max();
  for (const JobSize& size : job.request.sizes) {
    Start start = Earliest(job, size, seats, now);
    if (start.at == Clock::time_point::max()) continue;
    const Clock::time_point end = start.at + Duration(size.seconds);
    if (best != nullptr && end >= best_end) continue;
    best = &size;
    best_start = std::move(start);
    best_end = end;
  }
  if (best != nullptr && !best_start.seats.empty() && (!reserved || best_end <= reserved->at)) {
    Give(job, *best, best_start.seats, 0, now);
    return true;
  }
  if (TryExpress(job, seats, now, reserved)) return true;
  if (best != nullptr && !reserved) reserved = Reserved{.at = best_start.at, .size = *best};
  return false;
}

// Chooses the worker with the fewest express jobs, and leaves memory to the job with a reservation.
bool Scheduler::TryExpress(Ticket& job, const std::vector<Seat*>& seats, Clock::time_point now,
                           const std::optional<Reserved>& reserved) {
  const JobSize& size = job.request.sizes.front();
  Seat* best = nullptr;
  for (Seat* seat : seats) {
    const Member& member = *seat->member;
    if (!IsShort(size, member) || FreeLane(*seat) == 0) continue;
    if (best != nullptr && JobsOnLanes(*seat) >= JobsOnLanes(*best)) continue;
    const int64_t bytes = size.BytesOn(member), limit = member.memory_limit_bytes;
    const bool in_time =
        !reserved || now + Duration(size.SecondsOfOneThread(member)) <= reserved->at;
    if (!in_time && bytes > limit - reserved->size.BytesOn(member)) continue;
    if (Clock::time_point(member.backs_off_until.load()) > now) continue;
    if (seat->bytes <= limit - bytes) best = seat;
  }
  if (best == nullptr) return false;
  Give(job, size, {best}, FreeLane(*best), now);
  return true;
}

void Scheduler::Give(Ticket& job, const JobSize& size, const std::vector<Seat*>& seats, int lane,
                     Clock::time_point now) {
  job.grant.emplace();
  job.grant->lane = lane;
  job.size = size;
  job.end =
      now + Duration(lane > 0 ? size.SecondsOfOneThread(*seats.front()->member) : size.seconds);
  given_[job.request.caller] += WorkerSeconds(size);
  for (Seat* seat : seats) {
    job.grant->members.push_back(seat->member);
    (lane > 0 ? seat->express[static_cast<size_t>(lane) - 1] : seat->job) = &job;
    seat->bytes += size.BytesOn(*seat->member);
  }
  job.changed->notify_all();
}

void Scheduler::TakeBack(Ticket& job) {
  for (Seat& seat : seats_) {
    const auto lane = std::ranges::find(seat.express, &job);
    if (seat.job != &job && lane == seat.express.end()) continue;
    (seat.job == &job ? seat.job : *lane) = nullptr;
    seat.bytes -= job.size.BytesOn(*seat.member);
  }
  job.grant.reset();
}

int Scheduler::JobsBefore(const Ticket& job) {
  const std::vector<Ticket*> waiting = InTurn(time_.Now());
  const auto found = std::find(waiting.begin(), waiting.end(), &job);
  return static_cast<int>(found - waiting.begin());
}

Scheduler::Place::~Place() {
  if (scheduler_ == nullptr) return;
  const MutexLock lock(scheduler_->mutex_);
  scheduler_->TakeBack(*job_);
  const std::string caller = job_->request.caller;
  scheduler_->jobs_.erase(job_);
  scheduler_->ForgetIdle(caller);
  scheduler_->Dispatch();
}

// A caller does not pay for lost workers.
void Scheduler::Refund(Ticket& job) {
  if (job.grant) {
    given_[job.request.caller] -= WorkerSeconds(job.size);
    job.again = true;
  }
  TakeBack(job);
}

void Scheduler::ForgetIdle(const std::string& caller) {
  const bool others = std::any_of(jobs_.begin(), jobs_.end(),
                                  [&](const Ticket& job) { return job.request.caller == caller; });
  if (!others) given_.erase(caller);
}

void Scheduler::Place::GiveBack() {
  const MutexLock lock(scheduler_->mutex_);
  scheduler_->Refund(*job_);
  job_->waiting_for_workers = true;
  scheduler_->Dispatch();
}

void Scheduler::Place::WaitAgain(std::vector<JobSize> sizes, const Members& without) {
  const MutexLock lock(scheduler_->mutex_);
  scheduler_->Refund(*job_);
  job_->request.sizes = std::move(sizes);
  job_->without = without;
  job_->waiting_for_workers = false;
  scheduler_->Dispatch();
}

absl::StatusOr<Grant> Scheduler::Place::Await(const JobStop& stop, Deadline deadline,
                                              const std::function<void(int)>& report) {
  Scheduler& s = *scheduler_;
  MutexLock lock(s.mutex_);
  int reported = -1;
  Clock::time_point news_due = s.time_.Now() + kFirstNews;
  const auto refused = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(s.mutex_) {
    return !s.closed_.ok() && !job_->again;
  };
  while (true) {
    RETURN_IF_ERROR(stop.why());
    if (job_->grant) return *job_->grant;
    if (!job_->put_out.ok()) return job_->put_out;
    if (refused()) return s.closed_;
    const Clock::time_point now = s.time_.Now();
    if (now >= deadline) {
      return wire::ErrorOf(
          wire::reason::kQueueTimeout,
          absl::StrCat("the job waited too long for workers (--queue-timeout); ",
                       s.JobsBefore(*job_), " jobs are still before it in the queue"));
    }
    if (now >= news_due) {
      news_due = now + kNewsInterval;
      const int before = s.JobsBefore(*job_);
      if (before != std::exchange(reported, before)) {
        lock.unlock();
        report(before);
        lock.lock();
        continue;
      }
    }
    s.time_.WaitUntil(*job_->changed, lock, stop.token(),
                      std::min({deadline, news_due, now + kDispatchInterval}),
                      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(s.mutex_) {
                        return job_->grant.has_value() || !job_->put_out.ok() || refused();
                      });
    // Events dispatch at once; otherwise a waiting job dispatches now and then.
    if (!job_->grant && s.time_.Now() - s.dispatched_ >= kDispatchInterval) s.Dispatch();
  }
}

}  // namespace hilbert_ring::server
