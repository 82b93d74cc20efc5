#include "server/schedule/plan_gate.h"

#include <future>

#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::server {
namespace {

TEST(PlanGate, LetsSoManyInAtOnce) {
  PlanGate gate(2);
  PlanGate::Turn first = gate.TryEnter(), second = gate.TryEnter();
  EXPECT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(gate.TryEnter(), nullptr);
  first.reset();
  EXPECT_NE(gate.TryEnter(), nullptr);
}

TEST(PlanGate, OthersWaitForTheirTurnOrTheirStop) {
  PlanGate gate(1);
  PlanGate::Turn first = gate.TryEnter();
  JobStop stopped, stop;
  auto leaves = std::async(std::launch::async, [&] { return gate.Await(stopped).status(); });
  auto waits = std::async(std::launch::async, [&] { return gate.Await(stop).ok(); });
  stopped.Request(absl::CancelledError("the client left"));
  EXPECT_TRUE(absl::IsCancelled(leaves.get()));
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(waits.get());
}

TEST(PlanGate, OrdinaryJobsPlanFast) {
  JobSpec spec = PlainSpec({.tokens = 1 << 20, .heads = 16, .dim = 64});
  spec.branches = {{2048, 1}, {4096, 2}, {8192, 4}, {16384, 8}, {32768, 16}};
  EXPECT_TRUE(PlansFast(spec, 64));
  EXPECT_FALSE(PlansFast(spec, 4096));
  spec.sequence_lengths.assign(1 << 20, 1);
  EXPECT_FALSE(PlansFast(spec, 1));
  spec.sequence_lengths.clear();
  spec.heads = spec.kv_heads = 4096;
  spec.branches.assign(64, {1 << 20, 4096});
  EXPECT_FALSE(PlansFast(spec, 8));
}

}  // namespace
}  // namespace hilbert_ring::server
