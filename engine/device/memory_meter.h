// Counts a device's memory against a limit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"

namespace hilbert_ring {

// Thread-safe.
class MemoryMeter {
 public:
  explicit MemoryMeter(int64_t limit_bytes) : limit_(limit_bytes) {}

  // RESOURCE_EXHAUSTED with bytes, use and limit; counts nothing then.
  absl::Status Take(int64_t bytes) {
    const MutexLock lock(mutex_);
    if (bytes > limit_ - used_) {
      return absl::ResourceExhaustedError(absl::StrCat("the device was asked for ", bytes,
                                                       " bytes; ", used_, " of ", limit_,
                                                       " bytes are in use"));
    }
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return absl::OkStatus();
  }
  void Give(int64_t bytes) {
    const MutexLock lock(mutex_);
    used_ -= bytes;
  }

  int64_t limit() const { return limit_; }
  int64_t used() const {
    const MutexLock lock(mutex_);
    return used_;
  }
  int64_t peak() const {
    const MutexLock lock(mutex_);
    return peak_;
  }

 private:
  const int64_t limit_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring
