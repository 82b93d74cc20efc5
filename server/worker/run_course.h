// Where a run is in its course (run_phase.h), how far its parts are, and why it failed: what its
// threads tell each other.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"
#include "server/worker/run_cancellation.h"
#include "server/worker/run_phase.h"

namespace hilbert_ring::server {

inline absl::Status RunCancelled() {
  return absl::CancelledError("the coordinator cancelled the job");
}

struct RunProgress {
  int64_t rows_final = 0;  // local rows of the outputs
  double fraction = 0;     // of the compute
  int64_t waiting_step = 0;
  int64_t layer = 0;       // of an encoder, that was computed
  int64_t file_bytes = 0;  // read and written
};

struct RunNews {
  RunPhase phase = RunPhase::kOpening;
  RunProgress progress;
  absl::Status failure;
};

// Thread-safe.
class RunCourse {
 public:
  // cancelled: whether the coordinator has cancelled the call (run_cancellation.h).
  explicit RunCourse(std::function<bool()> cancelled) : cancellation_(std::move(cancelled)) {}

  // A phase that may not follow is not entered: a failure came first.
  void Enter(RunPhase phase);

  // The first failure counts. None counts once the run is done.
  void Fail(absl::Status why);

  // Compute has returned. Where RowsDone is not read yet, all rows are there all the same. The
  // sender does not wake.
  void EndCompute(const absl::Status& status);

  // Local rows [0, rows) are there.
  void AddRows(int64_t rows);

  // All rows of the shard are there. compute_limit: from now on; 0: none.
  void AddAllRows(std::chrono::milliseconds compute_limit);

  // Until local rows [0, rows) are there. The run's failure if they do not come.
  absl::Status AwaitRows(int64_t rows);

  // change: of the RunProgress.
  template <typename Change>
  void Note(const Change& change) {
    const MutexLock lock(mutex_);
    change(progress_);
  }

  // Whether it has failed; a cancellation is a failure too. For any thread, between tiles.
  bool IsStopped();
  Deadline compute_due() const { return compute_due_; }

  RunNews news() const;
  absl::Status failure() const { return news().failure; }
  Deadline entered(RunPhase phase) const;  // Deadline(): never

  // Wakes the sender.
  void Wake() { changed_.notify_all(); }
  // Until the phase is another than that of `seen`, or more rows are final, or the time has passed.
  RunNews AwaitNews(const RunNews& seen, std::chrono::milliseconds limit);
  // Whether compute has returned.
  bool AwaitComputed(std::chrono::milliseconds limit);

 private:
  bool Move(RunPhase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFailure(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RunNews News() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {phase_, progress_, failure_};
  }

  const RunCancellation cancellation_;
  std::atomic<bool> stopped_ = false;
  std::atomic<Deadline> compute_due_ = Deadline::max();
  mutable Mutex mutex_;
  ConditionVariable changed_, rows_changed_;
  RunPhase phase_ ABSL_GUARDED_BY(mutex_) = RunPhase::kOpening;
  std::array<Deadline, kRunPhases> entered_ ABSL_GUARDED_BY(mutex_) = {};
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  RunProgress progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
