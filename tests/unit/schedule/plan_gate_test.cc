#include "server/schedule/plan_gate.h"

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::minutes kLong{10};

bool Wanted() { return false; }

TEST(PlanGate, OthersWaitForTheirTurnOrTheirStop) {
  PlanGate gate(1);
  PlanGate::Turn first = gate.Enter("a", Wanted);
  JobStop stopped, stop;
  auto leaves =
      std::async(std::launch::async, [&] { return gate.Await("a", stopped, kLong).status(); });
  auto waits = std::async(std::launch::async, [&] { return gate.Await("a", stop, kLong).ok(); });
  stopped.Request(absl::CancelledError("the client left"));
  EXPECT_TRUE(absl::IsCancelled(leaves.get()));
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(waits.get());
}

TEST(PlanGate, AJobWaitsForItsTurnUpToALimit) {
  PlanGate gate(1);
  PlanGate::Turn first = gate.Enter("a", Wanted);
  const JobStop stop;
  const auto late = gate.Await("b", stop, std::chrono::milliseconds(20));
  EXPECT_EQ(wire::ReasonOf(late.status()), "QUEUE_TIMEOUT") << late.status();
  EXPECT_THAT(std::string(late.status().message()),
              ::testing::HasSubstr("20 ms (--queue-timeout)"));
  EXPECT_EQ(gate.waiting(), 0);
  first.reset();
  EXPECT_TRUE(gate.Await("b", stop, std::chrono::milliseconds(20)).ok());
}

// All places of a job wait together: the caller that had its turn last is the last.
TEST(PlanGate, WaitingCallersAlternate) {
  PlanGate gate(1);
  PlanGate::Turn first = gate.Enter("a", Wanted);
  JobStop stop;
  std::mutex mutex;
  std::string order;
  std::vector<std::jthread> waiting;
  for (const char* caller : {"a", "a", "a", "b", "c", "b"}) {
    waiting.emplace_back([&, caller] {
      const auto turn = gate.Await(caller, stop, kLong);
      const std::lock_guard lock(mutex);
      order += caller;
    });
    while (gate.waiting() < std::ssize(waiting)) std::this_thread::yield();
  }
  first.reset();
  for (std::jthread& thread : waiting) thread.join();
  EXPECT_EQ(order, "bcabaa");
}

TEST(PlanGate, TheCallerWithFewerPlacesIsNext) {
  PlanGate gate(2);
  PlanGate::Turn one = gate.Enter("a", Wanted), another = gate.Enter("a", Wanted);
  JobStop stop;
  auto more = std::async(std::launch::async, [&] { return gate.Await("a", stop, kLong).ok(); });
  EXPECT_EQ(more.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  auto other = std::async(std::launch::async, [&] { return gate.Enter("b", Wanted); });
  while (gate.waiting() < 2) std::this_thread::yield();
  one.reset();
  const PlanGate::Turn of_other = other.get();
  EXPECT_NE(of_other, nullptr);
  EXPECT_EQ(more.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  another.reset();
  EXPECT_TRUE(more.get());
}

TEST(PlanGate, WaitsOfCallsAreBounded) {
  using std::chrono::milliseconds;
  PlanGate gate(1, {.most = 1, .patience = milliseconds(200)});
  PlanGate::Turn first = gate.Enter("a", Wanted);
  auto waits = std::async(std::launch::async, [&] { return gate.Enter("b", Wanted); });
  EXPECT_EQ(waits.wait_for(milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(gate.Enter("b", Wanted), nullptr);  // at once: the caller waits already
  EXPECT_EQ(gate.Enter("c", Wanted), nullptr);  // at once: the queue is full
  EXPECT_EQ(waits.get(), nullptr);              // after its patience
  std::atomic<bool> gone = false;
  PlanGate patient(1, {.most = 1, .patience = std::chrono::minutes(10)});
  first = patient.Enter("a", Wanted);
  auto leaves = std::async(std::launch::async,
                           [&] { return patient.Enter("b", [&] { return gone.load(); }); });
  EXPECT_EQ(leaves.wait_for(milliseconds(50)), std::future_status::timeout);
  gone = true;
  EXPECT_EQ(leaves.get(), nullptr);
  first.reset();
  EXPECT_NE(patient.Enter("c", Wanted), nullptr);
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
