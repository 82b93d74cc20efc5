#include "server/shard/job_memory.h"

#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

TEST(JobMemory, HoldsItsLimit) {
  JobMemory memory(100);
  std::optional<JobMemory::Reservation> a(*memory.Reserve(60));
  EXPECT_EQ(memory.used(), 60);
  const auto refused = memory.Reserve(41);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_EQ(wire::ReasonOf(refused.status()), "WORKER_MEMORY");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("100"));
  {
    const auto b = memory.Reserve(40);
    EXPECT_TRUE(b.ok());
    EXPECT_EQ(memory.used(), 100);
  }
  a.reset();
  EXPECT_EQ(memory.used(), 0);
  EXPECT_TRUE(memory.Reserve(100).ok());
  EXPECT_FALSE(memory.Reserve(std::numeric_limits<int64_t>::max()).ok());
}

}  // namespace
}  // namespace hilbert_ring::server
