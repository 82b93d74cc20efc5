// Memory of a worker's shard that coordinator and worker of a host share. Both map the same
// anonymous memory (memfd), which lives while either holds it: rows outlive a dead worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class SharedMemory {
 public:
  // Zero-filled; pages are taken when written. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(int64_t bytes);

  // FAILED_PRECONDITION if this process cannot reach the memory: another host, container or user.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Open(const v1::SharedMemory& offer);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }

  // Copies `bytes` of the payload to `to`, in this memory. RESOURCE_EXHAUSTED without a page.
  absl::Status Write(std::byte* to, wire::PayloadReader& from, int64_t bytes);

  // Returns the whole pages of [from, from + bytes) to the system; they become zero.
  void Discard(const std::byte* from, int64_t bytes);

  int64_t bytes() const { return bytes_; }

  // The memory may contain outputs of a shard, which later offers report.
  void MarkUsed() { used_ = true; }
  v1::SharedMemory offer() const;

 private:
  SharedMemory() = default;
  absl::Status Map();
  std::byte* tail() const;  // the page behind the bytes: the mark

  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  bool used_ = false;
};

// Returns whether a worker at this address may be on this host.
bool MayShareMemory(const std::string& address);

}  // namespace hilbert_ring::server
