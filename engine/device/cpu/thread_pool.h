// Threads that live as long as the device and share numbered pieces of work.
//
//   ThreadPool pool(2);                        // the caller and one thread more
//   pool.Run(pieces, chunk, [&](int thread, int64_t begin, int64_t end) { ...; return true; });
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring {

// Used by one thread at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Works pieces [begin, end) on thread [0, threads()). Returning false stops further claims.
  using Work = std::function<bool(int thread, int64_t begin, int64_t end)>;

  // Returns when all pieces [0, pieces) are done, or all claimed before a stop. Threads claim
  // `chunk` pieces at a time, from the last to the first; the caller is thread 0.
  void Run(int64_t pieces, int64_t chunk, const Work& work);

 private:
  void Serve(int thread);
  void Claim(int thread);

  Mutex mutex_;
  ConditionVariable wake_;
  ConditionVariable idle_;
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // runs started
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;  // workers that have not finished the current run
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;

  // The current run: written before generation_ moves, read after a thread sees that.
  const Work* work_ = nullptr;
  int64_t chunk_ = 1;
  std::atomic<int64_t> unclaimed_{0};  // pieces [0, unclaimed_) are unclaimed

  std::vector<std::thread> workers_;
};

}  // namespace hilbert_ring
