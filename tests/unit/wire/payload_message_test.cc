#include "wire/payload_message.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::wire {
namespace {

grpc::ByteBuffer Cut(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    slices.emplace_back(bytes.substr(begin, size));
  }
  return {slices.data(), slices.size()};
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

std::string Empty(int field, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += {static_cast<char>(field << 3 | 2), '\0'};
  return bytes;
}

bool IsTaken(const std::string& bytes, size_t cut = 1000) {
  v1::AttendRequest request;
  grpc::ByteBuffer buffer = Cut(bytes, cut);
  return ParseBounded(buffer, request);
}

TEST(BoundedMessage, HasAtMostSoManyParts) {
  EXPECT_TRUE(IsTaken(Empty(1, kMostParts)));
  EXPECT_FALSE(IsTaken(Empty(1, kMostParts + 1)));
  EXPECT_FALSE(IsTaken(Empty(9, kMostParts + 1)));  // an unknown field
}

TEST(BoundedMessage, CountsPartsOfParts) {
  v1::AttendRequest request;
  ASSERT_TRUE(
      request.mutable_open()->ParseFromString(Empty(v1::Open::kFilesFieldNumber, kMostParts / 2)));
  const std::string bytes = request.SerializeAsString();
  EXPECT_TRUE(IsTaken(bytes, 7));
  EXPECT_FALSE(IsTaken(bytes + bytes, 7));
}

TEST(BoundedMessage, IsReadAsOthersAre) {
  v1::AttendRequest request, read;
  v1::Open& open = *request.mutable_open();
  open.set_job_id("mine");
  open.mutable_spec()->set_tokens(7);
  open.add_files()->set_path(std::string(5000, '\x0b'));  // bytes that would begin a group
  for (const size_t cut : {1, 3, 10'000}) {
    grpc::ByteBuffer buffer = Cut(request.SerializeAsString(), cut);
    ASSERT_TRUE(ParseBounded(buffer, read));
    EXPECT_EQ(read.SerializeAsString(), request.SerializeAsString());
  }
  EXPECT_FALSE(IsTaken(std::string("\x0b\x0c")));      // a group
  EXPECT_FALSE(IsTaken(std::string("\x0a\x05\x0a")));  // truncated
}

}  // namespace
}  // namespace hilbert_ring::wire
