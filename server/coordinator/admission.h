// Whose turn it is. Jobs use all workers that are up, so one runs at a time; others wait, first
// come first served, in a queue of bounded length.
//
//   auto turn = admission.Enter();              // RESOURCE_EXHAUSTED when the queue is full
//   turn->Await(stop, deadline, tell);          // until the jobs before are gone
//   ...                                         // the next job's turn comes when `turn` goes
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>

#include "absl/status/statusor.h"
#include "server/coordinator/job_stop.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Thread-safe.
class Admission {
 public:
  class Turn {
   public:
    Turn(Turn&& other) noexcept : admission_(other.admission_), place_(other.place_) {
      other.admission_ = nullptr;
    }
    Turn& operator=(Turn&&) = delete;
    ~Turn();

    // Calls `tell` with the number of jobs before this one, where there are any, and again whenever
    // it has changed; its error ends the wait. RESOURCE_EXHAUSTED (QUEUE_TIMEOUT) at the deadline,
    // or the stop's reason.
    absl::Status Await(const JobStop& stop, Deadline deadline,
                       const std::function<absl::Status(int)>& tell);

   private:
    friend class Admission;
    Turn(Admission* admission, std::list<int>::iterator place)
        : admission_(admission), place_(place) {}
    Admission* admission_;  // null when moved from
    std::list<int>::iterator place_;
  };

  // max_waiting: jobs, beside the one that runs.
  explicit Admission(int max_waiting) : max_waiting_(max_waiting) {}

  // RESOURCE_EXHAUSTED (QUEUE_FULL), or the reason of Close.
  absl::StatusOr<Turn> Enter();

  // From here on nobody enters, and those that wait get `why`, which is not OK.
  void Close(absl::Status why);

  int running() const;
  int waiting() const;

 private:
  void Leave(std::list<int>::iterator place);
  int Position(std::list<int>::iterator place);  // under mutex_

  const int max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  absl::Status closed_;   // guarded by mutex_; OK while open
  std::list<int> queue_;  // guarded by mutex_; front: whose turn it is. Values mean nothing
};

}  // namespace hilbert_ring::server
