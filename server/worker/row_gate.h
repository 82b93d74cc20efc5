// Between the thread that receives rows and the one that computes on them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe.
class RowGate {
 public:
  // Local rows [0, rows) are there.
  void Open(int64_t rows) {
    const MutexLock lock(mutex_);
    rows_ = std::max(rows_, rows);
    changed_.notify_all();
  }

  // No more will come. The first reason counts.
  void Close(absl::Status why) {
    const MutexLock lock(mutex_);
    if (why_.ok()) why_ = std::move(why);
    changed_.notify_all();
  }

  // Until local rows [0, rows) are there; the reason if they will not be. Bounded by whoever calls
  // Close: the coordinator's stream ends, or its client's idle timeout does that.
  absl::Status Await(int64_t rows) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Known(rows); });
    return rows_ >= rows ? absl::OkStatus() : why_;
  }

  // Waits so long at most; whether Await would return at once.
  bool AwaitFor(int64_t rows, std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, limit,
                             [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Known(rows); });
  }

 private:
  bool Known(int64_t rows) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return rows_ >= rows || !why_.ok();
  }

  Mutex mutex_;
  ConditionVariable changed_;
  int64_t rows_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
