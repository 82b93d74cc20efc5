#include "engine/plan/pattern.h"

#include <random>

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

JobSpec Spec(int64_t heads, int64_t kv_heads, std::vector<Branch> branches, Mixing mixing) {
  JobSpec spec;
  spec.tokens = 1024;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = spec.value_dim = 8;
  spec.branches = std::move(branches);
  spec.mixing = mixing;
  return spec;
}

TEST(Phases, HeadGroupsGiveTheFirstBranchesTheRest) {
  const auto phases = Phases(Spec(8, 8, {{64, 1}, {128, 2}, {256, 4}}, Mixing::kHeadGroups));
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[0].heads(), 3);
  EXPECT_EQ(phases[1].heads(), 3);
  EXPECT_EQ(phases[2].heads(), 2);
  EXPECT_EQ(phases[1].offset, 1);
  EXPECT_EQ(phases[2].offset, 2);
  EXPECT_EQ(phases[2].head_begin, 6);
}

TEST(Phases, LseOffsetsFollowTheHead) {
  const JobSpec spec = Spec(8, 2, {{64, 4}}, Mixing::kLse);
  const auto phases = Phases(spec);
  ASSERT_EQ(phases.size(), 4u);
  for (const Phase& phase : phases) {
    for (int64_t head = phase.head_begin; head < phase.head_end; ++head) {
      EXPECT_EQ(phase.offset, head / 2);
    }
  }
  EXPECT_EQ(phases[1].kv_begin, 0);
  EXPECT_EQ(phases[2].kv_begin, 1);
  EXPECT_EQ(QueryHeads(spec, phases[2], 1).begin, 4);
  EXPECT_EQ(QueryHeads(spec, phases[2], 1).end, 6);
}

TEST(Selected, MatchesTheDefinition) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t origin = random() % 50, offset = random() % 7, dilation = 1 + random() % 9;
    const int64_t begin = origin + random() % 40, end = begin + random() % 40;
    std::vector<int64_t> expected;
    for (int64_t s = origin + offset; s < end; s += dilation) {
      if (s >= begin) expected.push_back(s);
    }
    const Progression rows = Selected(origin, offset, dilation, begin, end);
    ASSERT_EQ(rows.count, static_cast<int64_t>(expected.size()));
    if (rows.count > 0) {
      EXPECT_EQ(rows.first, expected.front());
      EXPECT_EQ(rows.last(), expected.back());
    }
  }
}

TEST(Selected, HugeDilationsDoNotOverflow) {
  const int64_t huge = int64_t{1} << 61;
  EXPECT_EQ(Selected(5, 0, huge, 5, int64_t{1} << 40).count, 1);
  EXPECT_EQ(Selected(5, 0, huge, 6, int64_t{1} << 40).count, 0);
}

TEST(Pairs, MatchesCounting) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t step = 1 + random() % 5, phase = random() % step;
    const Progression q{.first = phase + step * static_cast<int64_t>(random() % 20),
                        .step = step,
                        .count = static_cast<int64_t>(random() % 12)};
    const Progression k{.first = phase + step * static_cast<int64_t>(random() % 20),
                        .step = step,
                        .count = static_cast<int64_t>(random() % 12)};
    int64_t expected = 0;
    for (int64_t i = 0; i < q.count; ++i) {
      for (int64_t j = 0; j < k.count; ++j) {
        expected += k.first + j * step <= q.first + i * step;
      }
    }
    EXPECT_EQ(Pairs(q, k, true), expected);
    EXPECT_EQ(Pairs(q, k, false), q.count * k.count);
  }
}

TEST(ZeroKeys, MakeUpTheNumberOfTheOffset) {
  JobSpec spec = Spec(1, 1, {{100, 3}}, Mixing::kHeadGroups);
  spec.tail = Tail::kZero;
  EXPECT_EQ(ZeroKeys(spec, spec.branches[0], 100, 34), 0);
  EXPECT_EQ(ZeroKeys(spec, spec.branches[0], 100, 33), 1);
  spec.causal = true;
  EXPECT_EQ(ZeroKeys(spec, spec.branches[0], 100, 33), 0);
}

}  // namespace
}  // namespace hilbert_ring
