// Payloads for a transport that may hold on to a message after it was written, in buffers
// that are used again: memory that was just used is cheap, memory from the system is not.
#pragma once

#include <memory>
#include <string_view>

#include "grpcpp/support/slice.h"
#include "wire/payload.h"

namespace hilbert_ring::wire {

// Holds as many buffers as were ever out at once, until it and the last slice are gone. Slices may
// be let go of by any thread.
class SlicePool {
 public:
  // For payloads of at most `bytes` each.
  explicit SlicePool(int64_t bytes);

  // A buffer to be filled, which goes back when nobody holds it any more: once filled, SliceOf its
  // first bytes with it as their owner. Aligned for any number.
  std::shared_ptr<char[]> Take();

  grpc::Slice Copy(std::string_view payload);
  grpc::Slice Copy(const Payload& payload);

 private:
  class Buffers;
  std::shared_ptr<Buffers> buffers_;
};

}  // namespace hilbert_ring::wire
