// How gRPC's transport is set up on both sides: for streams of large chunks, and so that a message
// is never longer than what the peer sent of it.
#pragma once

#include <utility>

#include "grpc/impl/codegen/compression_types.h"
#include "grpc/impl/codegen/grpc_types.h"
#include "wire/codec.h"

namespace hilbert_ring::wire {

// What of a client's stream may lie at the coordinator that nobody has asked for: what it may send
// behind Open before the job has its workers. Left to itself a server takes 4 MiB of each stream.
inline constexpr int kLookaheadBytes = 1 << 20;

// Spans in a job's trace, of all its workers together: they leave in one message.
inline constexpr int kMostSpansOfAJob = 1 << 15;

// The trailing metadata by which a refused call learns in how many milliseconds to come again.
inline constexpr char kRetryAfterKey[] = "grpc-retry-pushback-ms";

// Channel arguments, for channels and servers alike. A chunk is one frame, not 64 of 16 KiB, and is
// read in few calls.
inline constexpr std::pair<const char*, int> kTransportArguments[] = {
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxMessageBytes},
    {GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 64 << 10},
    {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxMessageBytes},
    // gRPC limits the length of a message after it has inflated it, and 4 MiB of gzip inflate to 4
    // GiB. A call whose messages are compressed ends with UNIMPLEMENTED; a message that is marked
    // as compressed in a call that did not say so stays as it is.
    {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
    {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
};

}  // namespace hilbert_ring::wire
