// Messages of a Run stream as buffers. Rows, tokens of the order and outputs stay in the
// transport's buffers (wire/payload_message.h); the bytes are those of the generated classes.
#pragma once

#include <cstdint>

#include "engine/spec/tensor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// A received message. The payload of rows, an order part or an output lies beside `fields`, mostly
// in the buffer, and is valid while the message is unchanged.
template <typename Message>
struct RunMessage {
  grpc::ByteBuffer buffer;
  Message fields;
  wire::Payload payload;
};

[[nodiscard]] bool Split(RunMessage<v1::RunRequest>& message);
[[nodiscard]] bool Split(RunMessage<v1::RunResponse>& message);

grpc::ByteBuffer JoinRows(const v1::ShardRows& rows, const grpc::Slice& payload);
grpc::ByteBuffer JoinOrder(const v1::OrderPart& part, const grpc::Slice& tokens);

// first_slot: of the output's rows.
grpc::ByteBuffer JoinOutput(const v1::OutputChunk& output, int64_t first_slot,
                            const grpc::Slice& payload);

// The largest payload of a message with `rows` rows of these sizes, or of the order.
int64_t MostPayloadBytes(const RowSizes& sizes, int64_t rows);

}  // namespace hilbert_ring::server
