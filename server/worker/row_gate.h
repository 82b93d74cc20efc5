// Between the thread that receives rows and the one that computes on them.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// Thread-safe.
class RowGate {
 public:
  // Local rows [0, rows) are there.
  void Open(int64_t rows) {
    const std::lock_guard lock(mutex_);
    rows_ = std::max(rows_, rows);
    changed_.notify_all();
  }

  // No more will come. The first reason counts.
  void Close(absl::Status why) {
    const std::lock_guard lock(mutex_);
    if (why_.ok()) why_ = std::move(why);
    changed_.notify_all();
  }

  // Until local rows [0, rows) are there; the reason if they will not be. Bounded by whoever calls
  // Close: the coordinator's stream ends, or its client's idle timeout does that.
  absl::Status Await(int64_t rows) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rows_ >= rows || !why_.ok(); });
    return rows_ >= rows ? absl::OkStatus() : why_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t rows_ = 0;  // guarded by mutex_, like all below
  absl::Status why_;
};

}  // namespace hilbert_ring::server
