// Gives workers to jobs.
//
//   auto place = scheduler.Enter(request);         // RESOURCE_EXHAUSTED when the queue is full
//   auto grant = place->Await(stop, deadline, report);   // workers, in the order of their ranks
//   ...
//   place->GiveBack();                             // workers were lost: frees the others
//   place->WaitAgain(sizes, without);              // the job goes before all others
//   grant = place->Await(...);
//
// A worker has one job at a time. A job gets the size with the earliest predicted end, waiting
// included. The caller with the least worker time given is next. Its jobs go in the order of
// predicted seconds minus seconds waited, so a long job waits at most about its own length longer.
// While the first job waits for workers, others run if they are predicted to end before its start.
// A job that is short on one thread and finds all workers busy runs on an express lane, memory
// permitting: one lane beside a long job, all lanes of the worker beside short ones.
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
  // Not empty, in rising order of workers. The first is the size on an express lane, and wins ties.
  std::vector<JobSize> sizes;
  // Whether the member can compute it; called with the scheduler's lock held. Null: all.
  std::function<bool(const Member& member)> takes = nullptr;
};

struct Grant {
  Members members;  // by rank
  int lane = 0;     // 0: the members' own; from 1: an express lane
  bool express() const { return lane > 0; }
};

// Thread-safe.
class Scheduler {
 private:
  struct Ticket;

 public:
  // A job's place in the queue, then its workers, until it is destroyed.
  class Place {
   public:
    Place(Place&& other) noexcept : scheduler_(other.scheduler_), job_(other.job_) {
      other.scheduler_ = nullptr;
    }
    Place& operator=(Place&&) = delete;
    ~Place();

    // Calls `report`, which must not block, with the number of jobs before this one: after a
    // moment, and again when the number changes. RESOURCE_EXHAUSTED (QUEUE_TIMEOUT) at the
    // deadline, or the stop's reason.
    absl::StatusOr<Grant> Await(const JobStop& stop, Deadline deadline,
                                const std::function<void(int)>& report);

    // Gives the workers back; WaitAgain must follow before Await.
    void GiveBack();

    // Queues again with other sizes, `without` excluded. A job that had workers goes before all
    // others.
    void WaitAgain(std::vector<JobSize> sizes, const Members& without);

   private:
    friend class Scheduler;
    Place(Scheduler* scheduler, std::list<Ticket>::iterator job)
        : scheduler_(scheduler), job_(job) {}
    Scheduler* scheduler_;  // null when moved from
    std::list<Ticket>::iterator job_;
  };

  Scheduler(std::function<Members()> live, int max_waiting, const TimeSource& time = SystemTime())
      : live_(std::move(live)), max_waiting_(max_waiting), time_(time) {}

  // Checks before a job is sized, which can take long. RESOURCE_EXHAUSTED (QUEUE_FULL) if the queue
  // is full, no other caller has more jobs in it, and every worker has a job.
  absl::Status CheckRoom(const std::string& caller) const;

  // Waits until CheckRoom returns OK, the scheduler is closed, or the deadline. Enter returns the
  // error then. Returns the stop's reason if that comes first.
  absl::Status AwaitRoom(const std::string& caller, const JobStop& stop, Deadline deadline);

  // RESOURCE_EXHAUSTED (QUEUE_FULL), or the reason of Close. In a full queue the job replaces a job
  // of the caller with most jobs there, if its own caller has fewer, the new job included.
  absl::StatusOr<Place> Enter(JobRequest request);

  void Changed();  // after a change of the members

  // From now on Enter and waiting jobs get `why`. Jobs that had workers may still wait again.
  void Close(absl::Status why);

  double SecondsOfWork() const;  // predicted, of present jobs

  int running() const;
  int waiting() const;
  int busy_workers() const;  // with a job, on an express lane too

 private:
  static constexpr std::chrono::milliseconds kDispatchInterval{500};  // predictions change

  struct Ticket {
    JobRequest request;
    Members without;
    Clock::time_point entered;
    bool again = false;                // it had workers before
    bool waiting_for_workers = false;  // between GiveBack and WaitAgain
    absl::Status put_out;              // by another caller's job; OK: it was not
    std::optional<Grant> grant;
    JobSize size;           // of the grant
    Clock::time_point end;  // of the grant, predicted
    std::unique_ptr<std::condition_variable_any> changed =
        std::make_unique<std::condition_variable_any>();
  };
  struct Seat {  // a member that is live or has jobs
    std::shared_ptr<const Member> member;
    int64_t bytes = 0;  // of its jobs
    const Ticket* job = nullptr;
    std::vector<const Ticket*> express;  // by lane - 1; null: free
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
  // Without jobs that had workers before: they keep their place.
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
  std::condition_variable_any moved_;               // AwaitRoom waits for it
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);     // OK while open
  std::list<Ticket> jobs_ ABSL_GUARDED_BY(mutex_);  // in the order of arrival
  std::list<Seat> seats_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point dispatched_ ABSL_GUARDED_BY(mutex_);  // last
  // Worker seconds, of callers with jobs here.
  std::map<std::string, double> given_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
