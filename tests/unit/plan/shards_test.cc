#include "engine/plan/shards.h"

#include "engine/plan/plan.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring {
namespace {

JobSpec Dense(int64_t tokens, bool causal) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 8, .dim = 64});
  spec.causal = causal;
  return spec;
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
