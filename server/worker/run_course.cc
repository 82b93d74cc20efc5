#include "server/worker/run_course.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::hours kLongestCompute{24 * 365};

}  // namespace

bool RunCourse::Move(RunPhase phase) {
  if (!news_.failure.ok() || phase <= news_.phase) return false;
  news_.phase = phase;
  news_.times[static_cast<size_t>(phase)] = Clock::now();
  return true;
}

void RunCourse::NoteFailure(absl::Status why) {
  if (news_.phase == RunPhase::kDone || !news_.failure.ok()) return;
  news_.failure = std::move(why);
  if (news_.phase != RunPhase::kStarting && !news_.computed) news_.stopped_at = Clock::now();
  stopped_ = true;
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
  news_.computed = true;
}

void RunCourse::AddRows(int64_t rows) {
  const MutexLock lock(mutex_);
  rows_ = std::max(rows_, rows);
  rows_changed_.notify_all();
}

void RunCourse::AddAllRows(milliseconds compute_limit) {
  const MutexLock lock(mutex_);
  if (Move(RunPhase::kComputing) && compute_limit.count() > 0) {
    compute_due_ = news_.entered(RunPhase::kComputing) +
                   std::min<milliseconds>(compute_limit, kLongestCompute);
  }
  rows_ = std::numeric_limits<int64_t>::max();
  rows_changed_.notify_all();
}

absl::Status RunCourse::AwaitRows(int64_t rows) {
  MutexLock lock(mutex_);
  while (!rows_changed_.wait_for(lock, kAskInterval,
                                 [this, rows]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                   return rows_ >= rows || !news_.failure.ok();
                                 })) {
    lock.unlock();
    IsStopped();
    lock.lock();
  }
  return rows_ >= rows ? absl::OkStatus() : news_.failure;
}

// grpc::ServerContext::IsCancelled() makes a system call, and waits while another thread polls:
// 25 us on an AMD EPYC (2 cores), a fifth of the compute of 64 tokens. All threads of a run
// together therefore ask it once in an interval.
bool RunCourse::IsCancelled() {
  const Deadline now = Clock::now();
  Deadline due = ask_due_;
  return now >= due && ask_due_.compare_exchange_strong(due, now + kAskInterval) && cancelled_();
}

bool RunCourse::IsStopped() {
  if (!stopped_ && IsCancelled()) Fail(RunCancelled());
  return stopped_;
}

RunNews RunCourse::news() const {
  const MutexLock lock(mutex_);
  return news_;
}

RunNews RunCourse::AwaitNews(const RunNews& seen, milliseconds limit) {
  MutexLock lock(mutex_);
  changed_.wait_for(lock, limit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return news_.phase != seen.phase || news_.failure != seen.failure ||
           news_.computed != seen.computed || news_.progress.rows_final > seen.progress.rows_final;
  });
  return news_;
}

bool RunCourse::AwaitComputed(milliseconds limit) {
  MutexLock lock(mutex_);
  return changed_.wait_for(
      lock, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return news_.computed; });
}

}  // namespace hilbert_ring::server
