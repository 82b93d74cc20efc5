// Settings of gRPC's transport on both sides: large chunks, and no message longer than its bytes on
// the wire.
#pragma once

#include <utility>

#include "grpc/impl/codegen/compression_types.h"
#include "grpc/impl/codegen/grpc_types.h"
#include "wire/codec.h"

namespace hilbert_ring::wire {

// Bytes of a client's stream that the coordinator buffers before it requests them: input right
// after Open, before the job has its workers. The default of a server is 4 MiB a stream.
inline constexpr int kLookaheadBytes = 1 << 20;

// Spans of all workers in a job's trace, which leaves in one message.
inline constexpr int kMostSpansOfAJob = 1 << 15;

// Trailing metadata of a refused call: milliseconds until the next try.
inline constexpr char kRetryAfterKey[] = "grpc-retry-pushback-ms";

// Arguments of channels and servers. A chunk is one frame instead of 64 of 16 KiB, read in few
// calls.
inline constexpr std::pair<const char*, int> kTransportArguments[] = {
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxMessageBytes},
    {GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 64 << 10},
    {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxMessageBytes},
    // gRPC limits a message's length after inflating it, and 4 MiB of gzip inflate to 4 GiB. A call
    // with compressed messages ends with UNIMPLEMENTED. A message marked as compressed in an
    // uncompressed call is not inflated.
    {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
    {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
};

}  // namespace hilbert_ring::wire
