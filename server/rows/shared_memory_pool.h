// Shards of ended jobs, kept for a moment for later jobs: fresh pages can cost as much processor
// time as the rows. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"
#include "server/process/interval_thread.h"
#include "server/shard/shared_memory.h"

namespace hilbert_ring::server {

class SharedMemoryPool {
 public:
  // Frees memory that is not taken within `keep`, at most half of it later.
  explicit SharedMemoryPool(std::chrono::milliseconds keep);

  // Memory of `bytes` to a quarter more, kept or fresh. Without a fit all kept memory is freed
  // first. Errors of SharedMemory::Create.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Take(int64_t bytes);

  // Others may still read it: Take waits until they let go.
  void Keep(std::shared_ptr<SharedMemory> memory);

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  struct Kept {
    std::shared_ptr<SharedMemory> memory;
    Clock::time_point until;
  };
  void FreeOld();

  const std::chrono::milliseconds keep_;
  std::atomic<int64_t> hits_ = 0, misses_ = 0;
  Mutex mutex_;
  std::list<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  IntervalThread thread_;                         // last: uses the members above
};

}  // namespace hilbert_ring::server
