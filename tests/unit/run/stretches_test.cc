#include "engine/run/stretches.h"

#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kLeastRows = 8192;

JobSpec SpecOf(int64_t tokens, std::vector<Branch> branches) {
  JobSpec spec;
  spec.tokens = tokens;
  spec.heads = spec.kv_heads = static_cast<int64_t>(branches.size());
  spec.head_dim = spec.value_dim = 8;
  spec.branches = std::move(branches);
  return spec;
}

// Checks the contract of stretches for one rank without a ring.
void ExpectSound(const Plan& plan, int rank) {
  const std::vector<Stretch> stretches = MakeStretches(plan, rank, false, kLeastRows);
  std::vector<int64_t> left;  // segments not yet computed, by run
  for (const LocalSegments& run : plan.segments.local) left.push_back(run.count);
  int64_t needed = 0, final_rows = 0;
  for (const Stretch& stretch : stretches) {
    EXPECT_GE(stretch.rows_needed, needed);
    EXPECT_GE(stretch.rows_final, final_rows);
    EXPECT_LE(stretch.rows_final, stretch.rows_needed);
    needed = stretch.rows_needed;
    final_rows = stretch.rows_final;
    const ShardRange* range = nullptr;
    for (const ShardRange& candidate : plan.shards.OfRank(rank)) {
      if (candidate.begin <= stretch.begin && stretch.end <= candidate.end) range = &candidate;
    }
    ASSERT_NE(range, nullptr);
    for (size_t i = 0; i < plan.segments.local.size(); ++i) {
      const LocalSegments& run = plan.segments.local[i];
      if (run.rank != rank || run.begin < range->begin || run.begin >= range->end) continue;
      const LocalSegments part = InStretch(run, stretch);
      ASSERT_GE(part.count, 0);
      if (part.count > 0) {
        // Segments come in order and once, after the rows that they read.
        EXPECT_EQ(part.begin, run.begin + (run.count - left[i]) * run.length);
        EXPECT_LE(range->LocalRow(part.begin + part.count * part.length), stretch.rows_needed);
        left[i] -= part.count;
      }
      // Rows of later segments are not final.
      if (left[i] > 0) {
        EXPECT_LE(stretch.rows_final,
                  range->LocalRow(run.begin + (run.count - left[i]) * run.length));
      }
    }
  }
  for (size_t i = 0; i < left.size(); ++i) {
    if (plan.segments.local[i].rank == rank) {
      EXPECT_EQ(left[i], 0);
    }
  }
  EXPECT_EQ(final_rows, plan.shards.Rows(rank));
  EXPECT_EQ(needed, plan.shards.Rows(rank));
}

TEST(Stretches, EverySegmentOnceAndRowsFinalInTime) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const auto tokens = static_cast<int64_t>(1 + random() % 200'000);
    std::vector<Branch> branches;
    for (uint64_t i = 0; i <= random() % 3; ++i) {
      branches.push_back({.segment = static_cast<int64_t>(1 + random() % 30'000), .dilation = 1});
    }
    const auto plan = MakePlan(SpecOf(tokens, branches), 1);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ExpectSound(*plan, 0);
    if (HasFailure()) return;
  }
}

TEST(Stretches, LongJobsHaveSeveral) {
  const auto plan = MakePlan(SpecOf(100'000, {{2048, 1}, {8192, 4}}), 1);
  ASSERT_TRUE(plan.ok());
  const std::vector<Stretch> stretches = MakeStretches(*plan, 0, false, kLeastRows);
  EXPECT_GE(stretches.size(), 10u);
  EXPECT_EQ(MakeStretches(*plan, 0, false, 50'000).size(), 2u);
  EXPECT_EQ(stretches.front().rows_needed, 8192);
  EXPECT_EQ(stretches.front().rows_final, 8192);
}

TEST(Stretches, PartsOfManyRunsHaveFewTasks) {
  JobSpec spec = SpecOf(60'000, {{4, 1}, {30'000, 1}});
  for (int64_t length = 1; spec.sequence_lengths.size() < 30'000; length = 4 - length) {
    spec.sequence_lengths.push_back(length);
  }
  const auto plan = MakePlan(spec, 2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const bool exchanges_blocks : {false, true}) {
    for (const Stretch& stretch : MakeStretches(*plan, 1, exchanges_blocks, kLeastRows)) {
      int64_t end = stretch.begin;
      for (const Stretch& part : PartsOf(*plan, stretch)) {
        EXPECT_EQ(part.begin, std::exchange(end, part.end));
        EXPECT_EQ(part.rows_needed, stretch.rows_needed);
        size_t runs = 0;
        for (const int branch : {0, 1}) {
          runs += RunsWithin(plan->segments, branch, part.begin, part.end).size();
        }
        EXPECT_LE(runs * spec.kv_heads, static_cast<size_t>(kMostTasks));
      }
      EXPECT_EQ(end, stretch.end);
    }
  }
  const Stretch whole{.begin = 0, .end = 60'000};
  EXPECT_EQ(PartsOf(*MakePlan(SpecOf(60'000, {{4, 1}}), 1), whole).size(), 1u);
}

TEST(Stretches, NoRowIsFinalBeforeTheRingsEnd) {
  const auto plan = MakePlan(SpecOf(100'000, {{2048, 1}, {100'000, 16}}), 2);
  ASSERT_TRUE(plan.ok());
  for (const Stretch& stretch : MakeStretches(*plan, 1, true, kLeastRows)) {
    EXPECT_EQ(stretch.rows_final, 0);
    EXPECT_EQ(stretch.rows_needed, plan->shards.Rows(1));
  }
}

}  // namespace
}  // namespace hilbert_ring
