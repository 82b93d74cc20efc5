#include "server/stream/stream_memory.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

Caller Named(const std::string& name) { return {.turns = name}; }

TEST(StreamMemory, ACallerGetsHalfOfIt) {
  StreamMemory memory(100);
  const auto first = memory.Reserve(Named("a"), 30, "the stream");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto refused = memory.Reserve(Named("a"), 21, "the stream");
  EXPECT_EQ(wire::ReasonOf(refused.status()), "WAITING_MEMORY");
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("the stream takes 21 bytes, other streams of a have "
                        "30 of 50, the limit of a caller (half of --stream-memory)"));
  EXPECT_TRUE(memory.Reserve(Named("a"), 20, "the stream").ok());
  const auto other = memory.Reserve(Named("b"), 50, "the stream");
  const auto last = memory.Reserve(Named("c"), 20, "the stream");
  ASSERT_TRUE(other.ok() && last.ok());
  EXPECT_EQ(memory.used(), 100);
  const auto full = memory.Reserve(Named("d"), 1, "the stream");
  EXPECT_EQ(wire::ReasonOf(full.status()), "WAITING_MEMORY");
  EXPECT_THAT(std::string(full.status().message()), HasSubstr("have 100 of 100 (--stream-memory)"));
}

TEST(StreamMemory, AShareIsGivenBack) {
  StreamMemory memory(100);
  std::optional<StreamMemory::Share> half(*memory.Reserve(Named("a"), 50, "the stream"));
  EXPECT_FALSE(memory.Reserve(Named("a"), 1, "the stream").ok());
  half.reset();
  EXPECT_EQ(memory.used(), 0);
  EXPECT_FALSE(memory.Reserve(Named("a"), 51, "the stream").ok());
}

}  // namespace
}  // namespace hilbert_ring::server
