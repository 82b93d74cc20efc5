#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

class Counter {
 public:
  int count() {
#ifndef HILBERT_RING_WRONG
    const hilbert_ring::MutexLock lock(mutex_);
#endif
    return count_;
  }

 private:
  hilbert_ring::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

int Read() { return Counter().count(); }
