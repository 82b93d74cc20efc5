#include "server/worker/lane.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

TEST(Lane, TakesOneJobAtATime) {
  const auto device = MakeDevice({.threads = 1});
  ASSERT_TRUE(device.ok()) << device.status();
  Lane lane(**device);
  Lane::Turn first = lane.AwaitTurn(milliseconds(0));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(lane.AwaitTurn(milliseconds(5)), nullptr);
  first.reset();
  EXPECT_NE(lane.AwaitTurn(milliseconds(0)), nullptr);
}

TEST(Lane, GoesToTheNextWhenATurnEnds) {
  const auto device = MakeDevice({.threads = 1});
  ASSERT_TRUE(device.ok()) << device.status();
  Lane lane(**device);
  int inside = 0, most = 0, turns = 0;  // by whoever has the turn
  std::vector<std::thread> jobs;
  for (int job = 0; job < 4; ++job) {
    jobs.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const Lane::Turn turn = lane.AwaitTurn(std::chrono::seconds(60));
        if (turn == nullptr) return;
        most = std::max(most, ++inside);
        ++turns;
        --inside;
      }
    });
  }
  for (std::thread& job : jobs) job.join();
  EXPECT_EQ(turns, 400);
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace hilbert_ring::server
