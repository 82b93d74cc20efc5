#include "server/shard/run_message.h"

#include <algorithm>
#include <array>

#include "wire/codec.h"
#include "wire/payload_message.h"

namespace hilbert_ring::server {
namespace {

constexpr wire::PayloadFields kRows{.message = v1::RunRequest::kRowsFieldNumber,
                                    .payload = v1::ShardRows::kPayloadFieldNumber};
constexpr wire::PayloadFields kOrder{.message = v1::RunRequest::kOrderFieldNumber,
                                     .payload = v1::OrderPart::kTokensFieldNumber};
constexpr wire::PayloadFields kOutput{.message = v1::RunResponse::kOutputFieldNumber,
                                      .payload = v1::OutputChunk::kPayloadFieldNumber};
constexpr std::array kOfRequest = {kRows, kOrder};
constexpr std::array kOfResponse = {kOutput};

}  // namespace

bool Split(RunMessage<v1::RunRequest>& message) {
  if (wire::SplitMessage(message.buffer, kOfRequest, message.fields, message.payload)) return true;
  if (!wire::Parse(message.buffer, message.fields)) return false;
  const v1::RunRequest& request = message.fields;
  message.payload =
      wire::Payload(request.has_order() ? request.order().tokens() : request.rows().payload());
  return true;
}

bool Split(RunMessage<v1::RunResponse>& message) {
  if (wire::SplitMessage(message.buffer, kOfResponse, message.fields, message.payload)) return true;
  if (!wire::Parse(message.buffer, message.fields)) return false;
  message.payload = wire::Payload(message.fields.output().payload());
  return true;
}

grpc::ByteBuffer JoinRows(const v1::ShardRows& rows, const grpc::Slice& payload) {
  return wire::JoinPayload(kRows, rows, {payload});
}

grpc::ByteBuffer JoinOrder(const v1::OrderPart& part, const grpc::Slice& tokens) {
  return wire::JoinPayload(kOrder, part, {tokens});
}

grpc::ByteBuffer JoinOutput(const v1::OutputChunk& output, int64_t first_slot,
                            const grpc::Slice& payload) {
  v1::RunResponse beside;
  beside.set_first_slot(first_slot);
  return wire::JoinPayload(kOutput, output, {payload}, &beside);
}

int64_t MostPayloadBytes(const RowSizes& sizes, int64_t rows) {
  auto widest = static_cast<int64_t>(sizeof(int64_t));
  for (int i = 0; i < kTensorKinds; ++i) {
    widest = std::max(widest, sizes[static_cast<TensorKind>(i)]);
  }
  return std::max(widest, std::min<int64_t>(wire::kMaxPayloadBytes, rows * widest));
}

}  // namespace hilbert_ring::server
