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

// As the generated classes write it, in slices of at most `size` bytes.
template <typename Message>
RunMessage<Message> Received(const Message& message, size_t size) {
  const std::string bytes = message.SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    slices.emplace_back(bytes.substr(begin, size));
  }
  return {.buffer = grpc::ByteBuffer(slices.data(), slices.size()), .fields = {}, .payload = {}};
}

// Whether the payload was left where the transport put it. Slices of some bytes lie in themselves,
// and are others here.
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

v1::RunRequest Order() {
  v1::RunRequest request;
  request.mutable_order()->set_first_local_row(77);
  request.mutable_order()->set_tokens(std::string(4096, 't'));
  return request;
}

v1::RunResponse Output() {
  v1::RunResponse response;
  v1::OutputChunk& output = *response.mutable_output();
  output.set_tensor(v1::TENSOR_LSE);
  output.set_rows(2);
  for (const int64_t token : {700, 1}) output.add_tokens(token);
  output.set_payload(std::string(3000, 'o'));
  output.set_crc32c(5);
  response.set_first_slot(1 << 20);
  return response;
}

TEST(RunMessage, WhatTheGeneratedClassesWriteIsReadWithItsPayloadLeftInPlace) {
  for (const size_t size : {size_t{64}, size_t{1000}, size_t{1} << 20}) {
    RunMessage<v1::RunRequest> rows = Received(Rows(), size);
    ASSERT_TRUE(Split(rows));
    EXPECT_EQ(Text(rows.payload), Rows().rows().payload());
    EXPECT_TRUE(LiesIn(rows.payload, rows.buffer));
    v1::RunRequest without = Rows();
    without.mutable_rows()->clear_payload();
    EXPECT_EQ(rows.fields.SerializeAsString(), without.SerializeAsString());

    RunMessage<v1::RunRequest> order = Received(Order(), size);
    ASSERT_TRUE(Split(order));
    EXPECT_EQ(order.fields.order().first_local_row(), 77);
    EXPECT_EQ(Text(order.payload), Order().order().tokens());
    EXPECT_TRUE(LiesIn(order.payload, order.buffer));

    RunMessage<v1::RunResponse> output = Received(Output(), size);
    ASSERT_TRUE(Split(output));
    EXPECT_EQ(Text(output.payload), Output().output().payload());
    EXPECT_TRUE(LiesIn(output.payload, output.buffer));
    EXPECT_EQ(output.fields.first_slot(), 1 << 20) << "which stands behind the output";
    EXPECT_EQ(output.fields.output().tokens_size(), 2);
  }
}

TEST(RunMessage, TheGeneratedClassesReadWhatIsJoined) {
  const auto parsed = [](grpc::ByteBuffer buffer, auto message) {
    EXPECT_TRUE(wire::Parse(buffer, message));
    return message.SerializeAsString();
  };
  v1::RunRequest rows = Rows();
  const grpc::Slice row_bytes(rows.rows().payload());
  rows.mutable_rows()->clear_payload();
  EXPECT_EQ(parsed(JoinRows(rows.rows(), row_bytes), v1::RunRequest()), Rows().SerializeAsString());

  v1::RunRequest order = Order();
  const grpc::Slice tokens(order.order().tokens());
  order.mutable_order()->clear_tokens();
  EXPECT_EQ(parsed(JoinOrder(order.order(), tokens), v1::RunRequest()),
            Order().SerializeAsString());

  v1::RunResponse output = Output();
  const grpc::Slice values(output.output().payload());
  output.mutable_output()->clear_payload();
  EXPECT_EQ(parsed(JoinOutput(output.output(), output.first_slot(), values), v1::RunResponse()),
            Output().SerializeAsString());
}

TEST(RunMessage, OthersAreReadWhole) {
  v1::RunRequest done;
  done.mutable_done();
  RunMessage<v1::RunRequest> message = Received(done, 64);
  ASSERT_TRUE(Split(message));
  EXPECT_TRUE(message.fields.has_done());
  EXPECT_EQ(message.payload.bytes(), 0);
}

// Twice the same: protobuf merges them, and so does this.
TEST(RunMessage, RowsThatComeTwiceInAMessageAreWhatProtobufMakesOfThem) {
  const std::string twice = Rows().SerializeAsString() + Rows().SerializeAsString();
  const grpc::Slice slice(twice);
  RunMessage<v1::RunRequest> message{
      .buffer = grpc::ByteBuffer(&slice, 1), .fields = {}, .payload = {}};
  ASSERT_TRUE(Split(message));
  EXPECT_EQ(message.fields.rows().local_rows_size(), 6);
  EXPECT_EQ(Text(message.payload), Rows().rows().payload());
}

TEST(RunMessage, WhatIsCutOffIsNoMessage) {
  const std::string whole = Rows().SerializeAsString();
  for (size_t bytes = 1; bytes < whole.size(); bytes += 13) {
    const grpc::Slice slice(whole.substr(0, bytes));
    RunMessage<v1::RunRequest> message{
        .buffer = grpc::ByteBuffer(&slice, 1), .fields = {}, .payload = {}};
    EXPECT_FALSE(Split(message)) << bytes;
  }
}

TEST(RunMessage, APayloadIsNoLargerThanItsJobMakesIt) {
  RowSizes sizes;
  sizes.Set(TensorKind::kQ, 256);
  EXPECT_EQ(MostPayloadBytes(sizes, 10), 2560);
  EXPECT_EQ(MostPayloadBytes(sizes, int64_t{1} << 40), wire::kMaxPayloadBytes);
  sizes.Set(TensorKind::kLse, wire::kMaxPayloadBytes * 2);
  EXPECT_EQ(MostPayloadBytes(sizes, 1), wire::kMaxPayloadBytes * 2) << "a row is not cut";
}

}  // namespace
}  // namespace hilbert_ring::server
