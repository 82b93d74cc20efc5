// How gRPC's transport is set up on both sides for streams of large chunks.
#pragma once

#include <utility>

#include "grpc/impl/codegen/grpc_types.h"
#include "wire/codec.h"

namespace hilbert_ring::wire {

// Channel arguments, for channels and servers alike. A chunk is one frame, not 64 of 16 KiB, and is
// read in few calls.
inline constexpr std::pair<const char*, int> kTransportArguments[] = {
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxMessageBytes},
    {GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 64 << 10},
    {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxMessageBytes},
};

}  // namespace hilbert_ring::wire
