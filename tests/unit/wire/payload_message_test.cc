#include "wire/payload_message.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/many.pb.h"
#include "wire/checksum.h"

namespace hilbert_ring::wire {
namespace {

v1::OutputChunk Listed() {
  v1::OutputChunk chunk;
  chunk.set_tensor(v1::TENSOR_LSE);
  chunk.set_rows(3);
  for (const int64_t token : {7, 1, 300}) chunk.add_tokens(token);
  chunk.set_crc32c(0xfedcba98);
  return chunk;
}

std::string ReadThrough(const Payload& payload) {
  std::string text(static_cast<size_t>(payload.bytes()), '?');
  PayloadReader(payload).Read(text.data(), payload.bytes());
  return text;
}

// A buffer of slices of at most `size` bytes, as a transport may deliver it.
grpc::ByteBuffer Cut(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    slices.emplace_back(bytes.substr(begin, size));
  }
  return {slices.data(), slices.size()};
}

TEST(PayloadMessage, JoinedMessagesAreWhatTheGeneratedClassesRead) {
  for (const std::string& payload :
       {std::string("abcdef"), std::string(), std::string(5000, 'x')}) {
    std::vector<grpc::Slice> slices;
    for (size_t i = 0; i < payload.size(); i += 4) slices.emplace_back(payload.substr(i, 4));
    v1::OutputChunk chunk = Listed();
    grpc::ByteBuffer buffer = JoinPayload(kOutputFields, chunk, slices);
    v1::AttendResponse response;
    ASSERT_TRUE(Parse(buffer, response));
    chunk.set_payload(payload);
    v1::AttendResponse expected;
    *expected.mutable_output() = chunk;
    EXPECT_EQ(response.SerializeAsString(), expected.SerializeAsString());
  }
}

TEST(PayloadMessage, SplitsWhatTheGeneratedClassesWrite) {
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  chunk.set_tensor(v1::TENSOR_K);
  chunk.set_first_row(1 << 20);
  chunk.set_rows(2);
  chunk.set_payload(std::string(1000, 'a') + std::string(1000, 'b'));
  chunk.set_crc32c(77);
  const std::string bytes = request.SerializeAsString();
  for (const size_t size : {size_t{1}, size_t{7}, size_t{999}, bytes.size()}) {
    grpc::ByteBuffer buffer = Cut(bytes, size);
    v1::Chunk split;
    Payload payload;
    ASSERT_TRUE(SplitPayload(buffer, kChunkFields, split, payload)) << size;
    EXPECT_EQ(ReadThrough(payload), chunk.payload());
    EXPECT_EQ(payload.Crc32c(), Crc32c(chunk.payload()));
    v1::Chunk without = chunk;
    without.clear_payload();
    EXPECT_EQ(split.SerializeAsString(), without.SerializeAsString());
  }
}

TEST(PayloadMessage, SplitsNothingElse) {
  v1::Chunk chunk;
  Payload payload;
  const auto splits = [&](const std::string& bytes) {
    grpc::ByteBuffer buffer = Cut(bytes, 16);
    return SplitPayload(buffer, kChunkFields, chunk, payload);
  };
  v1::AttendRequest open;
  open.mutable_open()->set_job_id("a");
  EXPECT_FALSE(splits(open.SerializeAsString()));
  EXPECT_FALSE(splits(""));

  v1::AttendRequest request;
  request.mutable_chunk()->set_payload("abcdefghijklmnopqrstuvwxyz");
  request.mutable_chunk()->set_rows(1);
  const std::string whole = request.SerializeAsString();
  ASSERT_TRUE(splits(whole));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(splits(whole.substr(0, bytes))) << bytes;
  }
  EXPECT_FALSE(splits(whole + whole)) << "two chunks: the last one counts, says protobuf";
  EXPECT_FALSE(splits("\x12\xff\xff\xff\xff\x0f")) << "4 GiB";
  EXPECT_FALSE(
      splits("\x12\x07\x22\xff\xff\xff\xff\x0f"
             "ab"))
      << "a payload past its message";
}

TEST(PayloadMessage, ASliceKeepsItsOwner) {
  auto owner = std::make_shared<const std::string>("payload");
  const std::weak_ptr<const std::string> watch = owner;
  {
    const std::string_view bytes = *owner;
    const grpc::Slice slice = SliceOf(bytes, std::move(owner));
    EXPECT_EQ(slice.begin(), reinterpret_cast<const uint8_t*>(bytes.data()));
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

// Neither split nor parsed: a chunk of these fields within an AttendRequest.
void ExpectRefused(const std::string& chunk_fields) {
  grpc::ByteBuffer buffer =
      Cut(std::string("\x12") + static_cast<char>(chunk_fields.size()) + chunk_fields, 64);
  v1::Chunk chunk;
  Payload payload;
  EXPECT_FALSE(SplitPayload(buffer, kChunkFields, chunk, payload));
  v1::AttendRequest request;
  EXPECT_FALSE(Parse(buffer, request));
}

TEST(PayloadMessage, ATagThatIsCutOffIsRefused) { ExpectRefused("\x08\x02\x22\x01x\xff"); }

TEST(PayloadMessage, ATagOfSixBytesIsRefused) {
  ExpectRefused(
      "\x08\x02\xdd\xdd\xdd\xdd\xdd\x10"
      "12345678");
}

// As protobuf's own parser says, and not with its upper bits cut off.
TEST(PayloadMessage, LengthsBeyond32BitsAreRefused) {
  ExpectRefused(
      "\x08\x02\x22\x83\x80\x80\x80\x10"
      "abc");  // 2^32 + 3 bytes
}

// `count` fields of this number, all empty: two bytes each.
std::string Empty(int field, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += {static_cast<char>(field << 3 | 2), '\0'};
  return bytes;
}

bool IsTaken(const std::string& bytes, size_t cut = 1000) {
  v1::AttendManyRequest request;
  grpc::ByteBuffer buffer = Cut(bytes, cut);
  return ParseBounded(buffer, request);
}

TEST(BoundedMessage, HasAtMostSoManyParts) {
  EXPECT_TRUE(IsTaken(Empty(1, kMostParts)));
  EXPECT_FALSE(IsTaken(Empty(1, kMostParts + 1)));
  EXPECT_FALSE(IsTaken(Empty(9, kMostParts + 1)));  // of no field that it has
}

TEST(BoundedMessage, CountsPartsOfParts) {
  v1::SmallJob job;
  ASSERT_TRUE(job.ParseFromString(Empty(2, kMostParts / 2)));
  v1::AttendManyRequest request;
  *request.add_jobs() = job;
  EXPECT_TRUE(IsTaken(request.SerializeAsString(), 7));
  *request.add_jobs() = job;
  EXPECT_FALSE(IsTaken(request.SerializeAsString(), 7));
}

TEST(BoundedMessage, IsReadAsOthersAre) {
  v1::AttendManyRequest request, read;
  v1::SmallJob& job = *request.add_jobs();
  job.mutable_open()->set_job_id("mine");
  job.mutable_open()->mutable_spec()->set_tokens(7);
  job.add_rows()->set_payload(std::string(5000, '\x0b'));  // were it read, a group's begin
  for (const size_t cut : {1, 3, 10'000}) {
    grpc::ByteBuffer buffer = Cut(request.SerializeAsString(), cut);
    ASSERT_TRUE(ParseBounded(buffer, read));
    EXPECT_EQ(read.SerializeAsString(), request.SerializeAsString());
  }
  EXPECT_FALSE(IsTaken(std::string("\x0b\x0c")));      // a group
  EXPECT_FALSE(IsTaken(std::string("\x0a\x05\x0a")));  // cut off
}

}  // namespace
}  // namespace hilbert_ring::wire
