// Messages whose payload stays in the transport's buffers instead of protobuf's strings. The bytes
// on the wire are those of the generated classes.
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

// Place of a payload: field `payload` of the message in field `message` of the outer one.
struct PayloadFields {
  int message = 0;
  int payload = 0;
};

inline constexpr PayloadFields kChunkFields{.message = v1::AttendRequest::kChunkFieldNumber,
                                            .payload = v1::Chunk::kPayloadFieldNumber};
inline constexpr PayloadFields kOutputFields{.message = v1::AttendResponse::kOutputFieldNumber,
                                             .payload = v1::OutputChunk::kPayloadFieldNumber};

// Returns an outer message with `inner` and its payload; inner's own payload field must be empty.
// `beside`, of the outer message's type, adds fields; it may be null.
grpc::ByteBuffer JoinPayload(PayloadFields fields, const google::protobuf::MessageLite& inner,
                             const std::vector<grpc::Slice>& payload,
                             const google::protobuf::MessageLite* beside = nullptr);

// Reads an outer message that holds only the inner one. The payload stays in the buffer and is
// valid while the buffer lives. Returns false for another or malformed message; Parse distinguishes
// these.
[[nodiscard]] bool SplitPayload(grpc::ByteBuffer& buffer, PayloadFields fields,
                                google::protobuf::MessageLite& inner, Payload& payload);

// Reads an outer message that holds one of these inner ones once, and maybe other fields. The
// payload is read as in SplitPayload.
[[nodiscard]] bool SplitMessage(grpc::ByteBuffer& buffer, std::span<const PayloadFields> fields,
                                google::protobuf::MessageLite& outer, Payload& payload);

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);
[[nodiscard]] bool Parse(grpc::ByteBuffer& buffer, google::protobuf::MessageLite& message);

// Strings and nested messages that a caller's message may have. Each takes tens of bytes in the
// receiver but only two on the wire if empty: 4 MiB of them would take 160 MiB.
inline constexpr int kMostParts = 1 << 17;

// Parses an untrusted caller's message. Returns false also if it has more than kMostParts parts,
// before any is allocated.
[[nodiscard]] bool ParseBounded(grpc::ByteBuffer& buffer, google::protobuf::Message& message);

// `owner` keeps `bytes` alive until the transport drops them.
grpc::Slice SliceOf(std::string_view bytes, std::shared_ptr<const void> owner);

}  // namespace hilbert_ring::wire
