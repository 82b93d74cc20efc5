// Which job gets which workers, and when.
//
//   auto place = scheduler.Enter(request);         // RESOURCE_EXHAUSTED when the queue is full
//   auto grant = place->Await(stop, deadline, tell);   // workers, in the order of their ranks
//   ...
//   place->GiveBack();                             // workers were lost: the others may go on
//   place->WaitAgain(sizes, without);              // and the job is the next one
//   grant = place->Await(...);
//
// A job runs at the size at which it is predicted to end first, waiting for workers included; a
// worker has one job at a time. Callers take turns by the worker time that they were given; of one
// caller's jobs the shortest goes first, counted from when it came, so that a long one waits at
// most about its own length longer. While the first job waits for enough workers, others run that
// are predicted to be done by then. A job that is short on one thread and finds all busy runs
// beside others, on an express lane of a worker, memory permitting: beside a long job one, beside
// short ones as many as the worker has lanes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/cluster/membership.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "server/process/time_source.h"
#include "server/schedule/job_sizes.h"

namespace hilbert_ring::server {

struct JobRequest {
  std::string caller;
  // Not empty. In rising order of workers, the least of which is what it takes beside other jobs.
  // Of sizes at which it ends at the same time the first is taken.
  std::vector<JobSize> sizes;
  // Members that can compute it; asked with the scheduler's lock held. Null: all.
  std::function<bool(const Member& member)> takes = nullptr;
};

struct Grant {
  Members members;  // by rank
  int lane = 0;     // of the members: 0 their own, from 1 on an express lane
  bool express() const { return lane > 0; }
};

// Thread-safe.
class Scheduler {
 private:
  struct Ticket;

 public:
  // A job's place in the queue, then its hold on workers; both end with it.
  class Place {
   public:
    Place(Place&& other) noexcept : scheduler_(other.scheduler_), job_(other.job_) {
      other.scheduler_ = nullptr;
    }
    Place& operator=(Place&&) = delete;
    ~Place();

    // Calls `tell` with the number of jobs before this one, should it have to wait for more than a
    // moment, and again now and then where it has changed; it does not block. RESOURCE_EXHAUSTED
    // (QUEUE_TIMEOUT) at the deadline, or the stop's reason.
    absl::StatusOr<Grant> Await(const JobStop& stop, Deadline deadline,
                                const std::function<void(int)>& tell);

    // Gives the workers back and gets no others until it waits again.
    void GiveBack();

    // Waits at other sizes, `without` left out. A job that had workers gives them back and goes
    // before all others.
    void WaitAgain(std::vector<JobSize> sizes, const Members& without);

   private:
    friend class Scheduler;
    Place(Scheduler* scheduler, std::list<Ticket>::iterator job)
        : scheduler_(scheduler), job_(job) {}
    Scheduler* scheduler_;  // null when moved from
    std::list<Ticket>::iterator job_;
  };

  // live: the members that take jobs. max_waiting: jobs. time: what predictions, turns and waits go
  // by.
  Scheduler(std::function<Members()> live, int max_waiting, const TimeSource& time = SystemTime())
      : live_(std::move(live)), max_waiting_(max_waiting), time_(time) {}

  // Before a job of the caller is sized, which can take long. RESOURCE_EXHAUSTED (QUEUE_FULL) when
  // as many wait as may, the caller's are as many as anybody's, and every worker has a job; what is
  // short could still run beside one.
  absl::Status CheckRoom(const std::string& caller) const;

  // Until CheckRoom says OK, the scheduler is closed, or the deadline: Enter says what it is then.
  // The stop's reason when that comes first.
  absl::Status AwaitRoom(const std::string& caller, const JobStop& stop, Deadline deadline);

  // RESOURCE_EXHAUSTED (QUEUE_FULL), or the reason of Close. In a full queue a job takes the place
  // of another, of the caller who has most there, if that is more than its own caller has with it.
  absl::StatusOr<Place> Enter(JobRequest request);

  // Members came or went.
  void Changed();

  // From here on nobody enters, and those that wait get `why`, which is not OK; jobs that were
  // given workers may still wait again.
  void Close(absl::Status why);

  // Seconds until the jobs that are here now are predicted to be done.
  double SecondsOfWork() const;

  int running() const;
  int waiting() const;
  int busy_workers() const;  // that hold a job, on an express lane too

 private:
  // As time passes predictions change, and workers have rested.
  static constexpr std::chrono::milliseconds kDispatchInterval{500};

  struct Ticket {
    JobRequest request;
    Members without;
    Clock::time_point entered;
    bool again = false;                // it had workers before
    bool waiting_for_workers = false;  // and wants none now
    absl::Status put_out;              // of the queue, by another caller's job; OK: it was not
    std::optional<Grant> grant;
    JobSize size;           // of the grant
    Clock::time_point end;  // of the grant, predicted
    // Told of the grant, for which this job alone waits.
    std::unique_ptr<std::condition_variable_any> changed =
        std::make_unique<std::condition_variable_any>();
  };
  struct Seat {  // a member, while it is there or used
    std::shared_ptr<const Member> member;
    int64_t bytes = 0;  // of its jobs
    const Ticket* job = nullptr;
    std::vector<const Ticket*> express;  // by lane, the first one's is 1; null: it is free
  };
  struct Reserved {  // of the first job that cannot start now
    Clock::time_point at;
    JobSize size;
  };
  struct Start {
    Clock::time_point at;
    std::vector<Seat*> seats;  // empty: not now
  };

  void Dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(const std::string& caller) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double GivenToNewcomers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Waiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Jobs that wait, by caller; without those that had workers before, whose place is their own.
  std::map<std::string, int64_t> WaitingByCaller() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool PutOneOut(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status QueueFull(int64_t waiting) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static int64_t JobsOnLanes(const Seat& seat);
  static int FreeLane(const Seat& seat);
  static bool IsBusy(const Seat& seat);
  bool AnySeatIsFree() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Seat*> SeatsFor(const Ticket& job, const Members& live)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Ticket*> InTurn(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Start Earliest(const Ticket& job, const JobSize& size, const std::vector<Seat*>& seats,
                 Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryStart(Ticket& job, const std::vector<Seat*>& seats, Clock::time_point now,
                std::optional<Reserved>& reserved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryExpress(Ticket& job, const std::vector<Seat*>& seats, Clock::time_point now,
                  const std::optional<Reserved>& reserved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Give(Ticket& job, const JobSize& size, const std::vector<Seat*>& seats, int lane,
            Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeBack(Ticket& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refund(Ticket& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIdle(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int JobsBefore(const Ticket& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<Members()> live_;
  const int max_waiting_;
  const TimeSource& time_;
  mutable Mutex mutex_;
  std::condition_variable_any moved_;               // there may be room
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);     // OK while open
  std::list<Ticket> jobs_ ABSL_GUARDED_BY(mutex_);  // in the order in which they came
  std::list<Seat> seats_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point dispatched_ ABSL_GUARDED_BY(mutex_);  // last
  // Worker seconds, by caller with jobs here.
  std::map<std::string, double> given_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
