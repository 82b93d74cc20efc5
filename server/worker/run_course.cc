#include "server/worker/run_course.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCancelPoll{10};
constexpr std::chrono::hours kLongestCompute{24 * 365};

}  // namespace

bool RunCourse::Move(RunPhase phase) {
  if (!MayFollow(phase_, phase)) return false;
  phase_ = phase;
  entered_[static_cast<size_t>(phase)] = Clock::now();
  return true;
}

void RunCourse::NoteFailure(absl::Status why) {
  if (HasEnded(phase_)) return;
  if (failure_.ok()) failure_ = std::move(why);
  stopped_ = true;
  Move(PhaseAfterFailure(phase_));
}

void RunCourse::Enter(RunPhase phase) {
  const MutexLock lock(mutex_);
  Move(phase);
}

void RunCourse::Fail(absl::Status why) {
  {
    const MutexLock lock(mutex_);
    NoteFailure(std::move(why));
  }
  rows_changed_.notify_all();
  changed_.notify_all();
}

void RunCourse::EndCompute(const absl::Status& status) {
  const MutexLock lock(mutex_);
  if (status.ok()) {
    Move(RunPhase::kComputing);
    Move(RunPhase::kSending);
  } else {
    NoteFailure(status);
  }
  if (phase_ == RunPhase::kStopping) Move(RunPhase::kFailed);
}

void RunCourse::AddRows(int64_t rows) {
  const MutexLock lock(mutex_);
  rows_ = std::max(rows_, rows);
  rows_changed_.notify_all();
}

void RunCourse::AddAllRows(milliseconds compute_limit) {
  const MutexLock lock(mutex_);
  if (Move(RunPhase::kComputing) && compute_limit.count() > 0) {
    compute_due_ = entered_[static_cast<size_t>(RunPhase::kComputing)] +
                   std::min<milliseconds>(compute_limit, kLongestCompute);
  }
  rows_ = std::numeric_limits<int64_t>::max();
  rows_changed_.notify_all();
}

absl::Status RunCourse::AwaitRows(int64_t rows) {
  MutexLock lock(mutex_);
  while (!rows_changed_.wait_for(lock, kCancelPoll,
                                 [this, rows]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                   return rows_ >= rows || !failure_.ok();
                                 })) {
    lock.unlock();
    IsStopped();
    lock.lock();
  }
  return rows_ >= rows ? absl::OkStatus() : failure_;
}

bool RunCourse::IsStopped() {
  if (!stopped_ && cancellation_.IsCancelled()) Fail(RunCancelled());
  return stopped_;
}

RunNews RunCourse::news() const {
  const MutexLock lock(mutex_);
  return News();
}

Deadline RunCourse::entered(RunPhase phase) const {
  const MutexLock lock(mutex_);
  return entered_[static_cast<size_t>(phase)];
}

RunNews RunCourse::AwaitNews(const RunNews& seen, milliseconds limit) {
  MutexLock lock(mutex_);
  changed_.wait_for(lock, limit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return phase_ != seen.phase || progress_.rows_final > seen.progress.rows_final;
  });
  return News();
}

bool RunCourse::AwaitComputed(milliseconds limit) {
  MutexLock lock(mutex_);
  return changed_.wait_for(
      lock, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return HasComputed(phase_); });
}

}  // namespace hilbert_ring::server
