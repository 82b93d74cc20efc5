// Reservations of a process's memory, against its limit.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

class JobMemory {  // thread-safe
 public:
  class Reservation {
   public:
    Reservation(Reservation&& other) noexcept : memory_(other.memory_), bytes_(other.bytes_) {
      other.memory_ = nullptr;
    }
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Reservation() {
      if (memory_ != nullptr) memory_->used_ -= bytes_;
    }

    void Shrink(int64_t bytes) {
      if (memory_ == nullptr || bytes >= bytes_) return;
      memory_->used_ -= bytes_ - bytes;
      bytes_ = bytes;
    }

   private:
    friend class JobMemory;
    Reservation(JobMemory* memory, int64_t bytes) : memory_(memory), bytes_(bytes) {}
    JobMemory* memory_ = nullptr;  // null when moved from
    int64_t bytes_ = 0;
  };

  explicit JobMemory(int64_t limit_bytes) : limit_(limit_bytes) {}

  absl::StatusOr<Reservation> Reserve(int64_t bytes);  // RESOURCE_EXHAUSTED (WORKER_MEMORY)

  int64_t used() const { return used_; }
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_ = 0;
};

}  // namespace hilbert_ring::server
