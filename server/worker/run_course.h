// The phase of a run (run_phase.h), its progress and its failure, shared by its threads.
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
  int64_t rows_final = 0;  // of outputs
  double fraction = 0;     // of the compute
  int64_t waiting_step = 0;
  int64_t layer = 0;       // last computed, of an encoder
  int64_t file_bytes = 0;  // read and written
};

struct RunNews {
  RunPhase phase = RunPhase::kOpening;
  RunProgress progress;
  absl::Status failure;
};

class RunCourse {  // thread-safe
 public:
  // cancelled: whether the coordinator has cancelled the call; thread-safe.
  explicit RunCourse(std::function<bool()> cancelled) : cancellation_(std::move(cancelled)) {}

  void Enter(RunPhase phase);  // no effect if the phase may not follow: a failure came first

  void Fail(absl::Status why);  // the first failure counts; no effect once the run is done

  // Compute has returned, with all rows there even if RowsDone is unread. Does not wake the sender.
  void EndCompute(const absl::Status& status);

  void AddRows(int64_t rows);

  // All rows are there. compute_limit: from now on; 0: no limit.
  void AddAllRows(std::chrono::milliseconds compute_limit);

  // Waits for local rows [0, rows). Returns the run's failure if they do not come.
  absl::Status AwaitRows(int64_t rows);

  template <typename Change>
  void Note(const Change& change) {
    const MutexLock lock(mutex_);
    change(progress_);
  }

  // Returns whether the run has failed, a cancellation included. Any thread may ask between tiles.
  bool IsStopped();
  Deadline compute_due() const { return compute_due_; }

  RunNews news() const;
  absl::Status failure() const { return news().failure; }
  Deadline entered(RunPhase phase) const;  // Deadline(): never

  void Wake() { changed_.notify_all(); }
  // Waits until the phase differs from `seen`, more rows are final, or the time has passed.
  RunNews AwaitNews(const RunNews& seen, std::chrono::milliseconds limit);
  bool AwaitComputed(std::chrono::milliseconds limit);  // waits; true once compute has returned

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
