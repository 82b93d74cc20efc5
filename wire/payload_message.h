// Messages whose payload is not copied into or out of protobuf's strings: the same bytes on the
// wire as the generated classes write and read, with the payload in buffers of the transport.
//
//   grpc::ByteBuffer buffer = JoinPayload(kChunkFields, chunk, slices);     // AttendRequest{chunk}
//   SplitPayload(buffer, kChunkFields, chunk, payload);                     // and back
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::wire {

// Where a payload stands: field `payload` of the message in field `message` of the outer one.
struct PayloadFields {
  int message = 0;
  int payload = 0;
};

inline constexpr PayloadFields kChunkFields{.message = v1::AttendRequest::kChunkFieldNumber,
                                            .payload = v1::Chunk::kPayloadFieldNumber};
inline constexpr PayloadFields kOutputFields{.message = v1::AttendResponse::kOutputFieldNumber,
                                             .payload = v1::OutputChunk::kPayloadFieldNumber};

// An outer message that holds `inner`, whose own payload field is empty, with this payload, and the
// fields of `beside`, a message of the outer one's type; null: no others.
grpc::ByteBuffer JoinPayload(PayloadFields fields, const google::protobuf::MessageLite& inner,
                             const std::vector<grpc::Slice>& payload,
                             const google::protobuf::MessageLite* beside = nullptr);

// True when the outer message holds the inner one and nothing else, which is then read, its payload
// left where it is: valid as long as the buffer lives. False when it is another message, or not
// well-formed: parse it whole, which tells which.
[[nodiscard]] bool SplitPayload(grpc::ByteBuffer& buffer, PayloadFields fields,
                                google::protobuf::MessageLite& inner, Payload& payload);

// The same of an outer message that holds any one of these inner ones, once, and may hold other
// fields: all of it is read but the payload.
[[nodiscard]] bool SplitMessage(grpc::ByteBuffer& buffer, std::span<const PayloadFields> fields,
                                google::protobuf::MessageLite& outer, Payload& payload);

// Any message, whole. Parse is false when it is not well-formed.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);
[[nodiscard]] bool Parse(grpc::ByteBuffer& buffer, google::protobuf::MessageLite& message);

// Strings, and messages within messages, that a caller's message may have. Each takes the receiver
// tens of bytes, and an empty one the sender two: 4 MiB of those would be 160 MiB.
inline constexpr int kMostParts = 1 << 17;

// A message of a caller that may mean harm: false also where it has more parts than that, which is
// found before any is made.
[[nodiscard]] bool ParseBounded(grpc::ByteBuffer& buffer, google::protobuf::Message& message);

// Owns `bytes` through `owner` until the transport has let go of them.
grpc::Slice SliceOf(std::string_view bytes, std::shared_ptr<const void> owner);

}  // namespace hilbert_ring::wire
