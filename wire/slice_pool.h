// Reuses buffers of payloads, which the transport may hold after a write: recently used memory is
// cheaper than new memory from the system.
#pragma once

#include <memory>
#include <string_view>

#include "grpcpp/support/slice.h"
#include "wire/payload.h"

namespace hilbert_ring::wire {

// Keeps every buffer that it allocated until the pool and the last slice are gone. Any thread may
// drop slices.
class SlicePool {
 public:
  // bytes: the largest payload.
  explicit SlicePool(int64_t bytes);

  // Returns a buffer to fill, aligned for any number. SliceOf takes its first bytes with the buffer
  // as their owner; the last owner returns it to the pool.
  std::shared_ptr<char[]> Take();

  grpc::Slice Copy(std::string_view payload);
  grpc::Slice Copy(const Payload& payload);

 private:
  class Buffers;
  std::shared_ptr<Buffers> buffers_;
};

}  // namespace hilbert_ring::wire
