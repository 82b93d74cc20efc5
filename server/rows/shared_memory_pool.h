// Shards of ended jobs, kept for a moment for the next one: jobs that follow each other do not pay
// for fresh pages, which can cost as much processor time as bringing the rows.
//
//   auto memory = pool.Take(bytes).value();
//   ...                                  // a job
//   pool.Keep(memory);                   // when nobody will write to it any more
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/shard/shared_memory.h"

namespace hilbert_ring::server {

class SharedMemoryPool {
 public:
  // Memory that was not taken again within `keep` goes back to the system.
  explicit SharedMemoryPool(std::chrono::milliseconds keep);

  // Memory of at least `bytes`, and at most a quarter more: kept or fresh. Where nothing that is
  // kept will do, all of it is freed first. Errors as of SharedMemory::Create.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Take(int64_t bytes);

  // Others may still hold and read it: it is not handed out before they have let go.
  void Keep(std::shared_ptr<SharedMemory> memory);

  // How often memory was kept, and how often it had to be made.
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    std::shared_ptr<SharedMemory> memory;
    Clock::time_point until;
  };
  void Run(const std::stop_token& stop);

  const std::chrono::milliseconds keep_;
  std::atomic<int64_t> hits_ = 0, misses_ = 0;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::list<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // the one to be freed first is first
  bool sleeps_ ABSL_GUARDED_BY(mutex_) = false;   // the thread, until something is kept
  std::jthread thread_;                           // last: it uses all above
};

}  // namespace hilbert_ring::server
