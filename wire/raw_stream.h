// A bidirectional stream of a client with buffers as messages (wire/payload_message.h).
#pragma once

#include <memory>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"

namespace hilbert_ring::wire {

using RawStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

// `method` ("/package.Service/Method"), channel and context must outlive the stream.
std::unique_ptr<RawStream> OpenRawStream(grpc::Channel& channel, const char* method,
                                         grpc::ClientContext& context);

}  // namespace hilbert_ring::wire
