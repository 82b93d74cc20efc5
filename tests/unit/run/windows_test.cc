#include "engine/run/windows.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/random/random_spec.h"

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

// What windows promise, for one rank without a ring.
void ExpectSound(const Plan& plan, int rank) {
  const std::vector<Window> windows = MakeWindows(plan, rank, false, kLeastRows);
  std::vector<int64_t> left;  // segments not yet computed, by run
  for (const LocalSegments& run : plan.segments.local) left.push_back(run.count);
  int64_t needed = 0, final_rows = 0;
  for (const Window& window : windows) {
    EXPECT_GE(window.rows_needed, needed);
    EXPECT_GE(window.rows_final, final_rows);
    EXPECT_LE(window.rows_final, window.rows_needed);
    needed = window.rows_needed;
    final_rows = window.rows_final;
    const ShardRange* range = nullptr;
    for (const ShardRange& candidate : plan.shards.OfRank(rank)) {
      if (candidate.begin <= window.begin && window.end <= candidate.end) range = &candidate;
    }
    ASSERT_NE(range, nullptr);
    for (size_t i = 0; i < plan.segments.local.size(); ++i) {
      const LocalSegments& run = plan.segments.local[i];
      if (run.rank != rank || run.begin < range->begin || run.begin >= range->end) continue;
      const LocalSegments part = InWindow(run, window);
      ASSERT_GE(part.count, 0);
      if (part.count > 0) {
        // In order, none twice, and all that they read is there.
        EXPECT_EQ(part.begin, run.begin + (run.count - left[i]) * run.length);
        EXPECT_LE(range->LocalRow(part.begin + part.count * part.length), window.rows_needed);
        left[i] -= part.count;
      }
      // Rows of segments that are still to be computed are not final.
      if (left[i] > 0) {
        EXPECT_LE(window.rows_final,
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

TEST(Windows, EverySegmentOnceAndRowsFinalInTime) {
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

TEST(Windows, LongJobsHaveSeveral) {
  const auto plan = MakePlan(SpecOf(100'000, {{2048, 1}, {8192, 4}}), 1);
  ASSERT_TRUE(plan.ok());
  const std::vector<Window> windows = MakeWindows(*plan, 0, false, kLeastRows);
  EXPECT_GE(windows.size(), 10u);
  EXPECT_EQ(MakeWindows(*plan, 0, false, 50'000).size(), 2u);
  EXPECT_EQ(windows.front().rows_needed, 8192);
  EXPECT_EQ(windows.front().rows_final, 8192);
}

TEST(Windows, NoRowIsFinalBeforeTheRingsEnd) {
  const auto plan = MakePlan(SpecOf(100'000, {{2048, 1}, {100'000, 16}}), 2);
  ASSERT_TRUE(plan.ok());
  for (const Window& window : MakeWindows(*plan, 1, true, kLeastRows)) {
    EXPECT_EQ(window.rows_final, 0);
    EXPECT_EQ(window.rows_needed, plan->shards.Rows(1));
  }
}

}  // namespace
}  // namespace hilbert_ring
