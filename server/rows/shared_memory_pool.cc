#include "server/rows/shared_memory_pool.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

SharedMemoryPool::SharedMemoryPool(std::chrono::milliseconds keep)
    : keep_(keep), thread_(keep / 2, [this](const std::stop_token&) { FreeOld(); }) {}

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
}

void SharedMemoryPool::FreeOld() {
  std::list<Kept> freed;  // freed without the lock
  const MutexLock lock(mutex_);
  while (!kept_.empty() && kept_.front().until <= Clock::now()) {
    freed.splice(freed.end(), kept_, kept_.begin());
  }
}

}  // namespace hilbert_ring::server
