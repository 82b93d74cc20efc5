// A client's chunk as the coordinator has it from the network.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "hilbert_ring/v1/attention.pb.h"
#include "tests/fuzz/target.h"
#include "wire/payload_message.h"

namespace hilbert_ring::fuzz {

// Reads a message's bytes, which `payload` stays within, or within `request`. False where the
// coordinator refuses them. intact: they are a chunk.
inline bool SplitChunk(grpc::ByteBuffer& buffer, bool intact, v1::AttendRequest& request,
                       wire::Payload& payload) {
  if (wire::SplitPayload(buffer, wire::kChunkFields, *request.mutable_chunk(), payload))
    return true;
  Require(!intact, "a chunk splits");
  if (!wire::Parse(buffer, request) || !request.has_chunk()) return false;
  payload = wire::Payload(request.chunk().payload());
  return true;
}

}  // namespace hilbert_ring::fuzz
