#include "server/rows/shared_memory_pool.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

SharedMemoryPool::SharedMemoryPool(std::chrono::milliseconds keep)
    : keep_(keep), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemoryPool::Take(int64_t bytes) {
  std::list<Kept> freed;  // freed without the lock
  {
    const MutexLock lock(mutex_);
    const auto suits = [bytes](const Kept& kept) {
      return kept.memory.use_count() == 1 && kept.memory->bytes() >= bytes &&
             kept.memory->bytes() <= bytes + bytes / 4;
    };
    const auto found = std::find_if(kept_.begin(), kept_.end(), suits);
    if (found != kept_.end()) {
      std::shared_ptr<SharedMemory> memory = std::move(found->memory);
      kept_.erase(found);
      memory->MarkUsed();
      ++hits_;
      return memory;
    }
    freed.swap(kept_);
  }
  freed.clear();
  ++misses_;
  return SharedMemory::Create(bytes);
}

void SharedMemoryPool::Keep(std::shared_ptr<SharedMemory> memory) {
  const MutexLock lock(mutex_);
  kept_.push_back({std::move(memory), Clock::now() + keep_});
  if (sleeps_) changed_.notify_all();
}

void SharedMemoryPool::Run(const std::stop_token& stop) {
  // Small jobs take and keep memory all the time without waking the thread: it looks again when the
  // oldest was due.
  MutexLock lock(mutex_);
  while (true) {
    sleeps_ = kept_.empty();
    changed_.wait(lock, stop,
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !kept_.empty(); });
    sleeps_ = false;
    if (stop.stop_requested()) return;
    const Clock::time_point until = kept_.front().until;
    changed_.wait_until(lock, stop, until, [] { return false; });
    if (stop.stop_requested()) return;
    std::list<Kept> freed;
    while (!kept_.empty() && kept_.front().until <= Clock::now()) {
      freed.splice(freed.end(), kept_, kept_.begin());
    }
    lock.unlock();
    freed.clear();
    lock.lock();
  }
}

}  // namespace hilbert_ring::server
