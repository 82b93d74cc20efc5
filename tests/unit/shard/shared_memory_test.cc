#include "server/shard/shared_memory.h"

#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::Each;

constexpr int64_t kBytes = 100'000;

std::string Text(const SharedMemory& memory) {
  return {reinterpret_cast<const char*>(memory.data()), static_cast<size_t>(memory.bytes())};
}

TEST(SharedMemory, BothSidesSeeOneMemory) {
  const auto here = SharedMemory::Create(kBytes);
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ((*here)->bytes(), kBytes);
  EXPECT_THAT(Text(**here), Each('\0'));
  const auto there = SharedMemory::Open((*here)->offer());
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_NE((*here)->data(), (*there)->data());
  (*here)->data()[0] = std::byte{'a'};
  (*there)->data()[kBytes - 1] = std::byte{'z'};
  EXPECT_EQ(Text(**here), Text(**there));
  EXPECT_EQ(Text(**here)[0], 'a');
  EXPECT_EQ(Text(**here)[kBytes - 1], 'z');
}

TEST(SharedMemory, WritesRunsOfAnyLengthFromPayloadsInParts) {
  const auto memory = SharedMemory::Create(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::string text(kBytes, '?');
  for (int64_t i = 0; i < kBytes; ++i) text[i] = static_cast<char>('a' + i % 26);
  wire::Payload payload;
  for (size_t i = 0; i < text.size(); i += 77) payload.Append(std::string_view(text).substr(i, 77));
  wire::PayloadReader reader(payload);
  int64_t at = 0;
  for (const int64_t bytes : {int64_t{1}, int64_t{4095}, int64_t{50'000}, int64_t{16'384}}) {
    ASSERT_TRUE((*memory)->Write((*memory)->data() + at, reader, bytes).ok());
    at += bytes;
  }
  ASSERT_TRUE((*memory)->Write((*memory)->data() + at, reader, kBytes - at).ok());
  EXPECT_EQ(Text(**memory), text);
}

TEST(SharedMemory, RefusesWrongOffers) {
  const auto memory = SharedMemory::Create(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto refuses = [&](const auto& spoil) {
    v1::SharedMemory offer = (*memory)->offer();
    spoil(offer);
    return absl::IsFailedPrecondition(SharedMemory::Open(offer).status());
  };
  EXPECT_FALSE(refuses([](v1::SharedMemory&) {}));
  EXPECT_TRUE(refuses([](v1::SharedMemory& offer) { offer.set_mark(offer.mark() + 1); }));
  EXPECT_TRUE(refuses([](v1::SharedMemory& offer) { offer.set_bytes(10 * kBytes); }));
  EXPECT_TRUE(refuses([](v1::SharedMemory& offer) { offer.set_bytes(-1); }));
  EXPECT_TRUE(refuses([](v1::SharedMemory& offer) { offer.set_descriptor_number(0); }));
  EXPECT_TRUE(refuses([](v1::SharedMemory& offer) { offer.set_descriptor_number(12345); }));
  EXPECT_TRUE(refuses([](v1::SharedMemory& offer) { offer.set_process(1 << 30); }));
}

TEST(SharedMemory, OffersAreForThisHostAlone) {
  EXPECT_TRUE(MayShareMemory("127.0.0.1:7000"));
  EXPECT_TRUE(MayShareMemory("[::1]:7000"));
  EXPECT_TRUE(MayShareMemory("localhost:7000"));
  EXPECT_FALSE(MayShareMemory("10.0.0.7:7000"));
  EXPECT_FALSE(MayShareMemory("localhost.example:7000"));
}

}  // namespace
}  // namespace hilbert_ring::server
