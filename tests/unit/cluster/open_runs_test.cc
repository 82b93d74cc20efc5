#include "server/cluster/open_runs.h"

#include <chrono>
#include <future>
#include <string>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

v1::RunFailure FailureOf(uint64_t run) {
  v1::RunFailure failure;
  failure.set_run(run);
  failure.mutable_failed()->set_message("the device failed");
  return failure;
}

TEST(OpenRuns, AnOpenRunGetsItsFailures) {
  OpenRuns runs;
  std::string delivered;
  const auto listener = [&](const std::string& name) {
    return OpenRuns::Listener{
        .failed =
            [&delivered, name](const std::string& worker, const v1::RunFailed& failed) {
              delivered += name + " " + worker + ": " + failed.message() + "\n";
            },
        .look = [] {}};
  };
  auto one = runs.Enter(listener("one"));
  const auto other = runs.Enter(listener("other"));
  runs.Report("w", FailureOf(one->number()));
  EXPECT_EQ(delivered, "one w: the device failed\n");
  const uint64_t number = one->number();
  one.reset();
  runs.Report("w", FailureOf(number));
  EXPECT_EQ(delivered, "one w: the device failed\n");
}

TEST(OpenRuns, AllLookAFewTimesASecond) {
  OpenRuns runs;
  int looks = 0;
  const OpenRuns::Listener listener{.failed = [](const auto&, const auto&) {},
                                    .look = [&] { ++looks; }};
  auto one = runs.Enter(listener), other = runs.Enter(listener);
  const Clock::time_point now = Clock::now();
  runs.Look(now);
  EXPECT_EQ(looks, 2);
  runs.Look(now + milliseconds(249));
  EXPECT_EQ(looks, 2) << "every heartbeat asks";
  one.reset();
  runs.Look(now + milliseconds(250));
  EXPECT_EQ(looks, 3);
}

// The looking thread is a heartbeat of another worker, which must not be late.
TEST(OpenRuns, ALookDoesNotWaitForADeliveredFailure) {
  OpenRuns runs;
  std::promise<void> delivering, delivered;
  int looks = 0;
  const auto place = runs.Enter({.failed =
                                     [&](const auto&, const auto&) {
                                       delivering.set_value();
                                       delivered.get_future().wait();
                                     },
                                 .look = [&] { ++looks; }});
  const auto tell =
      std::async(std::launch::async, [&] { runs.Report("w", FailureOf(place->number())); });
  delivering.get_future().wait();
  auto look = std::async(std::launch::async, [&] { runs.Look(Clock::now()); });
  const auto done = look.wait_for(std::chrono::seconds(30));
  delivered.set_value();
  EXPECT_EQ(done, std::future_status::ready);
  look.wait();
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace hilbert_ring::server
