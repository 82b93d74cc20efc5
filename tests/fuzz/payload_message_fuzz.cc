// Raw buffers as they come off the network, cut into slices anyhow: what is split is what
// protobuf's own parser reads, and joins to the same message again.
#include <string>
#include <vector>

#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/target.h"
#include "wire/payload_message.h"

namespace hilbert_ring::fuzz {
namespace {

grpc::ByteBuffer Cut(Bytes bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min(size, bytes.size()));
    slices.emplace_back(part.data(), part.size());
    bytes = bytes.subspan(part.size());
  }
  return {slices.data(), slices.size()};
}

std::string TextOf(const wire::Payload& payload) {
  std::string text(static_cast<size_t>(payload.bytes()), '\0');
  wire::PayloadReader(payload).Read(text.data(), payload.bytes());
  return text;
}

template <typename Outer, typename Inner>
void Check(Bytes bytes, size_t slice, wire::PayloadFields fields, Inner* (Outer::*mutable_inner)(),
           bool (Outer::*has_inner)() const) {
  grpc::ByteBuffer buffer = Cut(bytes, slice);
  Inner inner;
  wire::Payload payload;
  const bool split = wire::SplitPayload(buffer, fields, inner, payload);
  Outer whole;
  grpc::ByteBuffer same = Cut(bytes, slice);
  const bool parsed = wire::Parse(same, whole);
  Outer bounded;
  grpc::ByteBuffer bound = Cut(bytes, slice);
  Require(!wire::ParseBounded(bound, bounded) ||
              (parsed && bounded.SerializeAsString() == whole.SerializeAsString()),
          "what is taken with bounds, protobuf reads");
  if (!split) return;
  Require(parsed && (whole.*has_inner)(), "what is split, protobuf reads");
  Inner& expected = *(whole.*mutable_inner)();
  const std::string text = TextOf(payload);
  Require(text == expected.payload(), "the payload is what protobuf reads");
  expected.clear_payload();
  inner.clear_payload();
  Require(inner.SerializeAsString() == expected.SerializeAsString(),
          "the other fields are what protobuf reads");
  grpc::ByteBuffer joined = wire::JoinPayload(fields, inner, {grpc::Slice(text)});
  Inner inner_again;
  wire::Payload payload_again;
  Require(wire::SplitPayload(joined, fields, inner_again, payload_again) &&
              TextOf(payload_again) == text &&
              inner_again.SerializeAsString() == inner.SerializeAsString(),
          "what is joined, splits again");
}

}  // namespace

void PayloadMessage(Bytes input) {
  SilenceProtobuf();
  InputBytes bytes(input);
  const size_t slice = 1 + bytes.Byte();
  const Bytes message = bytes.Rest();
  Check<v1::AttendRequest, v1::Chunk>(message, slice, wire::kChunkFields,
                                      &v1::AttendRequest::mutable_chunk,
                                      &v1::AttendRequest::has_chunk);
  Check<v1::AttendResponse, v1::OutputChunk>(message, slice, wire::kOutputFields,
                                             &v1::AttendResponse::mutable_output,
                                             &v1::AttendResponse::has_output);
}

}  // namespace hilbert_ring::fuzz
