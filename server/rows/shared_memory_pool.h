// Shared shards of ended jobs for later jobs. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/process/kept_memory.h"
#include "server/shard/shared_memory.h"

namespace hilbert_ring::server {

class SharedMemoryPool {
 public:
  explicit SharedMemoryPool(std::chrono::milliseconds keep) : kept_(keep) {}

  // Memory of `bytes` to a quarter more, kept or fresh. Errors of SharedMemory::Create.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Take(int64_t bytes) {
    if (std::shared_ptr<SharedMemory> memory = kept_.Take(bytes, bytes + bytes / 4)) {
      memory->MarkUsed();
      ++hits_;
      return memory;
    }
    ++misses_;
    return SharedMemory::Create(bytes);
  }

  void Keep(std::shared_ptr<SharedMemory> memory) { kept_.Keep(std::move(memory)); }

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  KeptMemory<SharedMemory> kept_;
  std::atomic<int64_t> hits_ = 0, misses_ = 0;
};

}  // namespace hilbert_ring::server
