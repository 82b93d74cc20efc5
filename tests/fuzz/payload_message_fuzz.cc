// Raw buffers in slices of any length: SplitPayload agrees with protobuf's own parser, and
// JoinPayload makes the same message again.
#include <string>
#include <vector>

#include "server/shard/run_message.h"
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
          "protobuf parses each message that ParseBounded parses");
  if (!split) return;
  Require(parsed && (whole.*has_inner)(), "protobuf parses each message that splits");
  Inner& expected = *(whole.*mutable_inner)();
  const std::string text = TextOf(payload);
  Require(text == expected.payload(), "the payload equals protobuf's");
  expected.clear_payload();
  inner.clear_payload();
  Require(inner.SerializeAsString() == expected.SerializeAsString(),
          "the other fields equal protobuf's");
  grpc::ByteBuffer joined = wire::JoinPayload(fields, inner, {grpc::Slice(text)});
  Inner inner_again;
  wire::Payload payload_again;
  Require(wire::SplitPayload(joined, fields, inner_again, payload_again) &&
              TextOf(payload_again) == text &&
              inner_again.SerializeAsString() == inner.SerializeAsString(),
          "a joined message splits again");
}

// A message of the Run stream agrees with protobuf's parser, whichever way it was split.
template <typename Message>
void CheckRun(Bytes bytes, size_t slice, std::string* (*mutable_payload)(Message&)) {
  server::RunMessage<Message> message{.buffer = Cut(bytes, slice), .fields = {}, .payload = {}};
  grpc::ByteBuffer same = Cut(bytes, slice);
  Message expected;
  const bool parsed = wire::Parse(same, expected);
  Require(server::Split(message) == parsed, "a run's message splits if protobuf parses it");
  if (!parsed) return;
  std::string* const payload = mutable_payload(expected);
  if (payload != nullptr) {
    Require(TextOf(message.payload) == *payload, "a run's payload equals protobuf's");
    payload->clear();
    std::string* const own = mutable_payload(message.fields);
    Require(own != nullptr, "a run's message has protobuf's kind");
    own->clear();
  }
  Require(message.fields.SerializeAsString() == expected.SerializeAsString(),
          "the other fields of a run equal protobuf's");
}

std::string* PayloadOf(v1::RunRequest& request) {
  if (request.has_rows()) return request.mutable_rows()->mutable_payload();
  return request.has_order() ? request.mutable_order()->mutable_tokens() : nullptr;
}

std::string* PayloadOf(v1::RunResponse& response) {
  return response.has_output() ? response.mutable_output()->mutable_payload() : nullptr;
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
  CheckRun<v1::RunRequest>(message, slice, &PayloadOf);
  CheckRun<v1::RunResponse>(message, slice, &PayloadOf);
}

}  // namespace hilbert_ring::fuzz
