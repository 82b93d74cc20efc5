// Memory of ended jobs, kept for a moment for later jobs: fresh pages can cost as much processor
// time as the rows.
//
//   KeptMemory<Buffer> kept;
//   std::shared_ptr<Buffer> memory = kept.Take(bytes, bytes);   // with old rows; null: make fresh
//   kept.Keep(std::move(memory));                        // after a job that ended well
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {

// Memory: has bytes(). Thread-safe.
template <typename Memory>
class KeptMemory {
 public:
  static constexpr std::chrono::milliseconds kKeep{500};

  // Frees memory that is not taken within `keep`, at most half of it later.
  explicit KeptMemory(std::chrono::milliseconds keep = kKeep)
      : keep_(keep), thread_(keep / 2, [this](const std::stop_token&) { FreeOld(); }) {}

  // Memory of `least` to `most` bytes. Null without a fit: then all kept memory is freed.
  std::shared_ptr<Memory> Take(int64_t least, int64_t most) {
    return Take([least, most](const Memory& memory) {
      return memory.bytes() >= least && memory.bytes() <= most;
    });
  }

  // The same for memory that `fits`.
  std::shared_ptr<Memory> Take(const std::function<bool(const Memory&)>& fits) {
    std::list<Kept> freed;  // freed without the lock
    const MutexLock lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&fits](const Kept& kept) {
      return kept.memory.use_count() == 1 && fits(*kept.memory);
    });
    if (found == kept_.end()) {
      freed.swap(kept_);
      return nullptr;
    }
    std::shared_ptr<Memory> memory = std::move(found->memory);
    kept_.erase(found);
    return memory;
  }

  // Others may still read it: Take waits until they let go.
  void Keep(std::shared_ptr<Memory> memory) {
    const MutexLock lock(mutex_);
    kept_.push_back({std::move(memory), Clock::now() + keep_});
  }

  int64_t bytes() const {
    const MutexLock lock(mutex_);
    int64_t bytes = 0;
    for (const Kept& kept : kept_) bytes += kept.memory->bytes();
    return bytes;
  }

 private:
  struct Kept {
    std::shared_ptr<Memory> memory;
    Deadline until;
  };

  void FreeOld() {
    std::list<Kept> freed;  // freed without the lock
    const MutexLock lock(mutex_);
    while (!kept_.empty() && kept_.front().until <= Clock::now()) {
      freed.splice(freed.end(), kept_, kept_.begin());
    }
  }

  const std::chrono::milliseconds keep_;
  mutable Mutex mutex_;
  std::list<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  IntervalThread thread_;                         // last: uses the members above
};

}  // namespace hilbert_ring::server
