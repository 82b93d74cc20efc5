// The first error of work that several threads do.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace hilbert_ring {

// Thread-safe.
class FirstError {
 public:
  // Returns whether the status is OK.
  bool Note(const absl::Status& status) {
    if (status.ok()) return true;
    const MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
    return false;
  }
  absl::Status Take() {
    const MutexLock lock(mutex_);
    return status_;
  }

 private:
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring
