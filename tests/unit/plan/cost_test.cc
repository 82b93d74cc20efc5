#include "engine/plan/cost.h"

#include <ctime>
#include <map>
#include <tuple>

#include "engine/plan/plan.h"
#include "engine/plan/rank_schedule.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/support/sanitizer.h"

namespace hilbert_ring {
namespace {

TEST(Costs, ResidentBytesFallWithWorkers) {
  for (const bool wide : {false, true}) {
    JobSpec spec = PublishedSpec(262144);
    if (wide) spec.branches = {{2048, 1}, {262144, 64}};
    const WorkerCost alone = MakePlan(spec, 1)->costs.workers[0];
    const int64_t one = alone.resident_bytes();
    EXPECT_EQ(one - alone.list_bytes, int64_t{262144} * (4 * 8 * 64 * 4 + 8 * 4));
    for (const int workers : {2, 4, 8}) {
      const auto plan = MakePlan(spec, workers);
      for (const WorkerCost& worker : plan->costs.workers) {
        EXPECT_LT(static_cast<double>(worker.resident_bytes()), 1.15 * one / workers);
      }
    }
  }
}

TEST(Costs, DilatedSegmentOverEverythingMovesOnlyItsPhase) {
  JobSpec spec = PublishedSpec(262144);
  spec.branches = {{2048, 1}, {262144, 64}};
  const auto plan = MakePlan(spec, 4);
  ASSERT_TRUE(plan.ok());
  // Each rank receives three quarters of the phase's 4,096 rows, with the branch's four heads.
  EXPECT_EQ(plan->costs.bytes_exchanged, 4 * 3 * 1024 * (4 * 128 * 4));
  EXPECT_EQ(plan->costs.branches[1].segments_exchanged, 1);
  EXPECT_EQ(plan->costs.bytes_exchanged_naive, 3 * int64_t{262144} * 8 * 128 * 4);
}

TEST(Costs, TransfersAreThoseOfTheSchedules) {
  JobSpec spec = PublishedSpec(65536);
  spec.branches = {{2048, 1}, {65536, 4}, {40000, 16}};
  spec.causal = true;
  const auto plan = MakePlan(spec, 5);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::map<std::tuple<int64_t, int, int>, int64_t> received;
  for (int rank = 0; rank < 5; ++rank) {
    const RankSchedule schedule = MakeRankSchedule(*plan, rank);
    for (size_t step = 0; step < schedule.steps.size(); ++step) {
      for (const BlockTransfer& transfer : schedule.steps[step].receives) {
        received[{static_cast<int64_t>(step) + 1, transfer.peer, rank}] += transfer.bytes;
      }
    }
  }
  ASSERT_EQ(plan->costs.transfers.size(), received.size());
  ASSERT_GT(received.size(), 5u);
  for (const StepTransfer& transfer : plan->costs.transfers) {
    EXPECT_EQ((received[{transfer.step, transfer.from, transfer.to}]), transfer.bytes);
  }
}

// 100,000 sequences of unequal neighbours, or as many spanning segments.
TEST(Costs, PlanningEndsWhenNobodyWantsThePlan) {
  JobSpec sequences = PublishedSpec(200'000);
  for (int i = 0; i < 100'000; ++i) sequences.sequence_lengths.push_back(1 + i % 2 * 2);
  sequences.branches = {{64, 1}, {128, 2}};
  JobSpec spanning = PublishedSpec(int64_t{1} << 30);
  spanning.heads = spanning.kv_heads = 64;
  spanning.mixing = Mixing::kLse;
  spanning.branches.clear();
  for (int i = 0; i < 16; ++i) spanning.branches.push_back({spanning.tokens, 2 * i + 1});
  for (const JobSpec& spec : {sequences, spanning}) {
    int asked = 0;
    ASSERT_TRUE(MakePlan(spec, 32, [&] { return ++asked < 0; }).ok());
    EXPECT_GT(asked, 20);  // throughout the planning
    for (const int left : {1, asked / 2, asked}) {
      int times = 0;
      const auto plan = MakePlan(spec, 32, [&] { return ++times >= left; });
      EXPECT_TRUE(absl::IsCancelled(plan.status())) << plan.status();
      EXPECT_EQ(times, left);  // planning ends at once
    }
  }
}

// Valid specs whose plans would have billions of parts are planned or refused in seconds.
TEST(Costs, TimeToPlanIsBounded) {
  std::vector<JobSpec> specs;
  JobSpec many_offsets = PublishedSpec(int64_t{1} << 36);
  many_offsets.heads = many_offsets.kv_heads = 4096;
  many_offsets.mixing = Mixing::kLse;
  many_offsets.branches.clear();
  for (int i = 0; i < 64; ++i) many_offsets.branches.push_back({(1 << 30) + 7919 * i, 4093 + i});
  specs.push_back(many_offsets);
  JobSpec many_sequences = many_offsets;
  many_sequences.tokens = 3 << 20;
  for (int i = 0; i < 1 << 20; ++i) many_sequences.sequence_lengths.push_back(2 + i % 2 * 2);
  specs.push_back(many_sequences);
  JobSpec coprime = PublishedSpec(int64_t{1} << 40);
  coprime.heads = coprime.kv_heads = 64;
  coprime.mixing = Mixing::kLse;
  coprime.branches.clear();
  for (int i = 0; i < 64; ++i) coprime.branches.push_back({coprime.tokens, 2 * i + 1});
  specs.push_back(coprime);
  for (JobSpec& spec : specs) {
    for (const int workers : {3, 200, kMaxWorkers}) {
      spec.causal = workers == 200;
      const std::clock_t start = std::clock();  // CPU time, because the processor is shared
      const auto plan = MakePlan(spec, workers);
      EXPECT_TRUE(plan.ok() || absl::IsOutOfRange(plan.status())) << plan.status();
      if (kThreadSanitizer) continue;
      EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 30);
    }
  }
  if (kThreadSanitizer) GTEST_SKIP() << "they are planned, but the time is the sanitizer's";
}

}  // namespace
}  // namespace hilbert_ring
