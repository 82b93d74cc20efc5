#include "server/process/refusal_log.h"

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(RefusalLog, HasALineAMinuteThatCountsTheOthers) {
  RefusalLog log;
  const Clock::time_point start;
  EXPECT_EQ(log.Note(start), 1);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(log.Note(start + std::chrono::seconds(59)), std::nullopt);
  EXPECT_EQ(log.Note(start + std::chrono::seconds(60)), 1001);
  EXPECT_EQ(log.Note(start + std::chrono::seconds(61)), std::nullopt);
  EXPECT_EQ(log.Note(start + std::chrono::seconds(120)), 2);
}

}  // namespace
}  // namespace hilbert_ring::server
