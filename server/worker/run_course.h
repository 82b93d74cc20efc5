// How far a run is, and its failure, shared by its threads.
//
//   kStarting -> kReceiving -> kComputing -> kSending -> kDone
//
// Compute begins in kReceiving, with the first rows. Final outputs leave from kReceiving on. After
// a failure the phase stays.
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

namespace hilbert_ring::server {

inline absl::Status RunCancelled() {
  return absl::CancelledError("the coordinator cancelled the job");
}

enum class RunPhase {
  kStarting,   // files and model, lane, memory
  kReceiving,  // all rows
  kComputing,  // the last result
  kSending,    // outputs and figures that leave
  kDone,       // the status follows
};

struct RunProgress {
  int64_t rows_final = 0;  // of outputs
  double fraction = 0;     // of the compute
  int64_t waiting_step = 0;
  int64_t layer = 0;                                  // last computed, of an encoder
  int64_t bytes_read = 0, bytes_written = 0;          // of files
  int64_t rows_not_finite = 0, first_not_finite = 0;  // in OUT or STATES of files; first by token
};

struct RunNews {
  RunPhase phase = RunPhase::kStarting;
  absl::Status failure;
  bool computed = false;  // compute has returned
  Deadline stopped_at;    // by a failure before compute returned; Deadline(): never
  RunProgress progress;
  std::array<Deadline, 5> times = {};  // of phases

  Deadline entered(RunPhase of) const { return times[static_cast<size_t>(of)]; }
};

class RunCourse {  // thread-safe
 public:
  static constexpr std::chrono::milliseconds kAskInterval{10};

  // cancelled: whether the coordinator has cancelled the call; thread-safe.
  explicit RunCourse(std::function<bool()> cancelled) : cancelled_(std::move(cancelled)) {}

  void Enter(RunPhase phase);  // no effect after a failure or a later phase

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
    change(news_.progress);
  }

  // Returns whether the run has failed, a cancellation included. Any thread may ask between tiles.
  bool IsStopped();
  Deadline compute_due() const { return compute_due_; }

  RunNews news() const;
  absl::Status failure() const { return news().failure; }

  void Wake() { changed_.notify_all(); }
  // Waits for a phase, a failure, the end of compute or final rows that are not in `seen`.
  RunNews AwaitNews(const RunNews& seen, std::chrono::milliseconds limit);
  bool AwaitComputed(std::chrono::milliseconds limit);  // waits; true once compute has returned

 private:
  bool Move(RunPhase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFailure(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsCancelled();

  const std::function<bool()> cancelled_;
  std::atomic<Deadline> ask_due_ = Clock::now() + kAskInterval;  // of the next look at cancelled_
  std::atomic<bool> stopped_ = false;
  std::atomic<Deadline> compute_due_ = Deadline::max();
  mutable Mutex mutex_;
  ConditionVariable changed_, rows_changed_;
  RunNews news_ ABSL_GUARDED_BY(mutex_);
  int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring::server
