// Every (query, key) pair of the pattern is computed exactly once, by the query's owner, from keys
// that have arrived. A row travels only to ranks that need it.
#include "engine/plan/exchange.h"

#include <array>
#include <random>
#include <vector>

#include "engine/plan/plan.h"
#include "gtest/gtest.h"
#include "tests/plan/plan_simulation.h"
#include "tests/random/random_spec.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring {
namespace {

using testing::PairsByDefinition;
using testing::PlanSimulation;

TEST(Exchange, EveryPairOnceAndNoRowTooMany) {
  std::mt19937_64 random(20240);
  int exchanging = 0, mirrored = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const JobSpec spec = testing::RandomSpec(random, {.max_tokens = 90, .max_heads = 6});
    ASSERT_TRUE(Validate(spec).ok()) << Validate(spec);
    const int workers = 1 + static_cast<int>(random() % 7);
    const auto plan = MakePlan(spec, workers);
    ASSERT_TRUE(plan.ok()) << plan.status();
    PlanSimulation simulation(*plan);
    const absl::Status status = simulation.Run();
    ASSERT_TRUE(status.ok()) << status << ", trial " << trial;
    EXPECT_EQ(simulation.pairs(), PairsByDefinition(spec)) << "trial " << trial;
    int64_t received = 0;
    for (int rank = 0; rank < workers; ++rank) {
      EXPECT_EQ(simulation.received(rank), plan->costs.workers[rank].bytes_received);
      received += simulation.received(rank);
    }
    EXPECT_EQ(received, plan->costs.bytes_exchanged);
    if (!spec.causal || !spec.ordering) {
      EXPECT_EQ(plan->costs.flops, 2.0 * static_cast<double>(spec.head_dim + spec.value_dim) *
                                       static_cast<double>(simulation.pairs().size()));
    }
    exchanging += plan->costs.steps > 0;
    mirrored += plan->mirrored;
  }
  EXPECT_GT(exchanging, 100);
  EXPECT_GT(mirrored, 10);
}

// A million sequences of one token are one run, not a million.
TEST(Segments, OfEqualSequencesAreARun) {
  JobSpec spec = PlainSpec({.tokens = 22, .heads = 1, .dim = 8});
  spec.sequence_lengths = {4, 4, 4, 3, 3, 0, 4};
  spec.branches = {{.segment = 2}, {.segment = 4}};
  const auto plan = MakePlan(spec, 1);
  ASSERT_TRUE(plan.ok());
  std::vector<std::array<int64_t, 4>> runs;  // branch, begin, length, count
  for (const LocalSegments& run : plan->segments.local) {
    runs.push_back({run.branch, run.begin, run.length, run.count});
  }
  const std::vector<std::array<int64_t, 4>> expected = {{0, 0, 2, 7},  {0, 14, 1, 1}, {0, 15, 2, 1},
                                                        {0, 17, 1, 1}, {0, 18, 2, 2}, {1, 0, 4, 3},
                                                        {1, 12, 3, 2}, {1, 18, 4, 1}};
  EXPECT_EQ(runs, expected);
  EXPECT_EQ(RunsWithin(plan->segments, 1, 3, 13).size(), 2u);
  EXPECT_EQ(RunsWithin(plan->segments, 1, 12, 18).size(), 1u);
  EXPECT_EQ(RunsWithin(plan->segments, 0, 14, 14).size(), 0u);
}

TEST(Route, GoesUpForSharedKeysAndDownForMirroredEnds) {
  JobSpec spec = PlainSpec({.tokens = 4096, .heads = 1, .dim = 8});
  spec.causal = true;
  const auto plan = MakePlan(spec, 4);
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->mirrored);
  const PhaseExchange exchange(spec, plan->segments.spanning.at(0), plan->phases.at(0));
  ASSERT_EQ(exchange.blocks().size(), 7u);  // the last rank's two ranges are joined
  EXPECT_EQ(exchange.Route(exchange.blocks()[0]), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(exchange.Route(exchange.blocks()[1]), (std::vector<int>{2, 3, 0}));
  EXPECT_EQ(exchange.Route(exchange.blocks()[4]), (std::vector<int>{1, 0}));
  EXPECT_EQ(exchange.Route(exchange.blocks()[6]), (std::vector<int>{}));
}

// A rank receives a neighbour's rows within the window, at any length.
TEST(Window, BringsItsRowsAlone) {
  JobSpec spec = PlainSpec({.tokens = 40000, .heads = 1, .dim = 8});
  spec.window = Window{.left = 100, .right = 7};
  const auto plan = MakePlan(spec, 4);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->mirrored);
  const int64_t row = 2 * 8 * 4;
  EXPECT_EQ(plan->costs.workers[0].bytes_received, 7 * row);
  EXPECT_EQ(plan->costs.workers[1].bytes_received, 107 * row);
  EXPECT_EQ(plan->costs.workers[3].bytes_received, 100 * row);
  EXPECT_EQ(plan->costs.steps, 1);
  EXPECT_LT(plan->costs.busiest_over_mean, 1.01);
}

}  // namespace
}  // namespace hilbert_ring
