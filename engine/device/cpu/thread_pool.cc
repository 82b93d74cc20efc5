#include "engine/device/cpu/thread_pool.h"

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring {

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(static_cast<size_t>(std::max(threads, 1)));
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { Serve(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t pieces, int64_t chunk, const Work& work) {
  if (pieces <= 0) return;
  work_ = &work;
  chunk_ = std::max<int64_t>(1, chunk);
  unclaimed_ = pieces;
  if (workers_.empty() || pieces <= chunk_) {
    Claim(0);
    return;
  }
  {
    const MutexLock lock(mutex_);
    ++generation_;
    busy_ = static_cast<int>(workers_.size());
  }
  wake_.notify_all();
  Claim(0);
  MutexLock lock(mutex_);
  idle_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return busy_ == 0; });
}

void ThreadPool::Serve(int thread) {
  int64_t served = 0;
  MutexLock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return ending_ || generation_ != served;
    });
    if (ending_) return;
    served = generation_;
    lock.unlock();
    Claim(thread);
    lock.lock();
    if (--busy_ == 0) idle_.notify_one();
  }
}

void ThreadPool::Claim(int thread) {
  while (true) {
    const int64_t end = unclaimed_.fetch_sub(chunk_, std::memory_order_relaxed);
    if (end <= 0) return;
    if (!(*work_)(thread, std::max<int64_t>(0, end - chunk_), end)) {
      unclaimed_.store(0, std::memory_order_relaxed);
      return;
    }
  }
}

}  // namespace hilbert_ring
