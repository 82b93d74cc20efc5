// Memory that coordinator and worker of one host share: the worker's shard.
//
//   auto memory = SharedMemory::Create(bytes).value();          // coordinator
//   offer = memory->offer();                                    // goes to the worker
//   auto memory = SharedMemory::Open(offer).value();            // worker
//
// It is anonymous memory (memfd) that both map: rows that one writes the other sees, without a
// socket between. It lives as long as one of them holds it, so that rows outlive a dead worker.
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
  // Zero-filled; takes memory as it is written. RESOURCE_EXHAUSTED, with the system's reason.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(int64_t bytes);

  // FAILED_PRECONDITION where this process cannot reach the memory that is meant: another host,
  // another container, another user.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Open(const v1::SharedMemory& offer);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }

  // Copies the next `bytes` of a payload to `to`, in this memory. RESOURCE_EXHAUSTED when the
  // system has no page for them.
  absl::Status Write(std::byte* to, wire::PayloadReader& from, int64_t bytes);

  // Gives the whole pages of [from, from + bytes) back to the system; what was there is zero.
  void Discard(const std::byte* from, int64_t bytes);

  int64_t bytes() const { return bytes_; }

  // Whether outputs of a shard may lie in it, as its offers say. Fresh memory is not used.
  void MarkUsed() { used_ = true; }
  v1::SharedMemory offer() const;

 private:
  SharedMemory() = default;
  absl::Status Map();
  std::byte* tail() const;  // the page behind the bytes, which holds the mark

  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  bool used_ = false;
};

// Whether a worker at this address may be on this host, so that an offer is worth its while.
bool MayShareMemory(const std::string& address);

}  // namespace hilbert_ring::server
