#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

class Account {
 public:
  void Move() {
#ifdef HILBERT_RING_WRONG
    const hilbert_ring::MutexLock second(second_);
    const hilbert_ring::MutexLock first(first_);
#else
    const hilbert_ring::MutexLock first(first_);
    const hilbert_ring::MutexLock second(second_);
#endif
  }

 private:
  hilbert_ring::Mutex second_;
  hilbert_ring::Mutex first_ ABSL_ACQUIRED_BEFORE(second_);
};

void Run() { Account().Move(); }
