#include "server/shard/run_message.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"

namespace hilbert_ring::server {
namespace {

std::string Text(const wire::Payload& payload) {
  std::string text(static_cast<size_t>(payload.bytes()), '?');
  wire::PayloadReader(payload).Read(text.data(), payload.bytes());
  return text;
}

// Serializes by the generated classes, in slices of at most `size` bytes.
template <typename Message>
RunMessage<Message> Received(const Message& message, size_t size) {
  const std::string bytes = message.SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    slices.emplace_back(bytes.substr(begin, size));
  }
  return {.buffer = grpc::ByteBuffer(slices.data(), slices.size()), .fields = {}, .payload = {}};
}

// Returns whether the payload is still in the transport's slices. Slices of a few bytes are copied.
bool LiesIn(const wire::Payload& payload, const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  const auto lies = [&](std::string_view part) {
    return part.size() < 64 || std::ranges::any_of(slices, [&](const grpc::Slice& slice) {
             const auto* const begin = reinterpret_cast<const char*>(slice.begin());
             return part.data() >= begin && part.data() + part.size() <= begin + slice.size();
           });
  };
  return std::ranges::all_of(payload.parts(), lies);
}

v1::RunRequest Rows() {
  v1::RunRequest request;
  v1::ShardRows& rows = *request.mutable_rows();
  rows.set_tensor(v1::TENSOR_V);
  rows.set_rows(3);
  for (const int64_t row : {9, 2, 300}) rows.add_local_rows(row);
  rows.set_payload(std::string(5000, 'v'));
  rows.set_crc32c(wire::Crc32c(rows.payload()));
  return request;
}

v1::RunResponse Output() {
  v1::RunResponse response;
  response.mutable_output()->set_payload(std::string(3000, 'o'));
  response.set_first_slot(1 << 20);
  return response;
}

TEST(RunMessage, AGeneratedMessageIsReadWithItsPayloadLeftInPlace) {
  for (const size_t size : {size_t{64}, size_t{1000}, size_t{1} << 20}) {
    RunMessage<v1::RunRequest> rows = Received(Rows(), size);
    ASSERT_TRUE(Split(rows));
    EXPECT_EQ(Text(rows.payload), Rows().rows().payload());
    EXPECT_TRUE(LiesIn(rows.payload, rows.buffer));
    v1::RunRequest without = Rows();
    without.mutable_rows()->clear_payload();
    EXPECT_EQ(rows.fields.SerializeAsString(), without.SerializeAsString());

    RunMessage<v1::RunResponse> output = Received(Output(), size);
    ASSERT_TRUE(Split(output));
    EXPECT_EQ(Text(output.payload), Output().output().payload());
    EXPECT_TRUE(LiesIn(output.payload, output.buffer));
    EXPECT_EQ(output.fields.first_slot(), 1 << 20) << "the field follows the output";
  }
}

TEST(RunMessage, APayloadIsNoLargerThanItsJobNeeds) {
  RowSizes sizes;
  sizes.Set(TensorKind::kQ, 256);
  EXPECT_EQ(MostPayloadBytes(sizes, 10), 2560);
  EXPECT_EQ(MostPayloadBytes(sizes, int64_t{1} << 40), wire::kMaxPayloadBytes);
  sizes.Set(TensorKind::kLse, wire::kMaxPayloadBytes * 2);
  EXPECT_EQ(MostPayloadBytes(sizes, 1), wire::kMaxPayloadBytes * 2) << "a row is not cut";
}

}  // namespace
}  // namespace hilbert_ring::server
