// Messages of a worker's Run stream as buffers: the same bytes as the generated classes write and
// read, with rows, tokens of the order and outputs in buffers of the transport
// (wire/payload_message.h).
//
//   call->Write(JoinRows(rows, pool.Copy(payload)));          // RunRequest{rows}
//   while (stream.Read(&message.buffer)) {
//     if (!Split(message)) ...                                // no RunRequest
//     Place(message.fields.rows(), message.payload);
//   }
#pragma once

#include <cstdint>

#include "engine/spec/tensor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// One that was read. The payload of rows, an order part or an output lies beside the other fields,
// as a rule in the buffer: whatever its own field says, these are its bytes, as long as this
// message is not changed.
template <typename Message>
struct RunMessage {
  grpc::ByteBuffer buffer;
  Message fields;
  wire::Payload payload;
};

// Reads the buffer; false when it holds no such message.
[[nodiscard]] bool Split(RunMessage<v1::RunRequest>& message);
[[nodiscard]] bool Split(RunMessage<v1::RunResponse>& message);

// To a worker.
grpc::ByteBuffer JoinRows(const v1::ShardRows& rows, const grpc::Slice& payload);
grpc::ByteBuffer JoinOrder(const v1::OrderPart& part, const grpc::Slice& tokens);

// From a worker. first_slot: of the output's rows.
grpc::ByteBuffer JoinOutput(const v1::OutputChunk& output, int64_t first_slot,
                            const grpc::Slice& payload);

// The largest payload of a message of a job with so many rows of these sizes, or of its order.
int64_t MostPayloadBytes(const RowSizes& sizes, int64_t rows);

}  // namespace hilbert_ring::server
