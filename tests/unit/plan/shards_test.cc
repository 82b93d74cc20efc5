#include "engine/plan/shards.h"

#include <random>

#include "engine/plan/plan.h"
#include "gtest/gtest.h"
#include "tests/random/random_spec.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring {
namespace {

JobSpec Dense(int64_t tokens, bool causal) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 8, .dim = 64});
  spec.causal = causal;
  return spec;
}

TEST(Shards, LocalRowsFollowSlotOrder) {
  const auto shards = Shards::Make(10, 2, {{0, 2, 0}, {2, 7, 1}, {7, 10, 0}});
  ASSERT_TRUE(shards.ok());
  EXPECT_EQ(shards->Rows(0), 5);
  EXPECT_EQ(shards->Find(8).LocalRow(8), 3);
  EXPECT_EQ(shards->Find(6).rank, 1);
  EXPECT_EQ(shards->Find(6).LocalRow(6), 4);
}

TEST(CutShards, TilesAndKeepsRowsWithinBounds) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    const JobSpec spec = testing::RandomSpec(random, {.max_tokens = 2000});
    const int workers = 1 + static_cast<int>(random() % 9);
    const int64_t mirror = trial % 2 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 2000);
    const Shards shards = CutShards(spec, workers, mirror);
    int64_t next = 0;
    for (const ShardRange& range : shards.ranges()) {
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.end, range.begin);
      next = range.end;
    }
    EXPECT_EQ(next, spec.tokens);
    for (int rank = 0; rank < workers; ++rank) {
      EXPECT_LE(static_cast<double>(shards.Rows(rank)),
                kMaxRowsOverMean * static_cast<double>(spec.tokens) / workers + 1);
    }
  }
}

TEST(CutShards, MovesToSegmentBoundaries) {
  JobSpec spec = Dense(1 << 20, false);
  spec.branches = {{2048, 1}, {4096, 2}, {8192, 4}};
  for (const int workers : {2, 3, 5, 7}) {
    const auto plan = MakePlan(spec, workers);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->costs.bytes_exchanged, 0) << workers;
    EXPECT_TRUE(plan->segments.spanning.empty());
  }
}

TEST(MakePlan, CausalWorkIsBalancedByMirroredRanges) {
  for (const int workers : {2, 3, 4, 7, 8, 16}) {
    const auto plan = MakePlan(Dense(1024 * workers + 37, true), workers);
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(plan->mirrored);
    EXPECT_LE(plan->costs.busiest_over_mean, 1.05) << workers;
  }
}

TEST(MakePlan, SpanningCausalSegmentsAreMirroredEach) {
  JobSpec spec = Dense(16384, true);
  spec.branches = {{8192, 1}};
  const auto plan = MakePlan(spec, 8);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->mirrored);
  EXPECT_LE(plan->costs.busiest_over_mean, 1.05);
}

TEST(MakePlan, PlainJobsHaveOneRangeEach) {
  for (const bool causal : {false, true}) {
    JobSpec spec = Dense(1 << 18, causal);
    spec.branches = {{1024, 1}};
    const auto plan = MakePlan(spec, 4);
    ASSERT_TRUE(plan.ok());
    EXPECT_FALSE(plan->mirrored);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(plan->shards.OfRank(rank).size(), 1u);
  }
}

}  // namespace
}  // namespace hilbert_ring
