#include "gtest/gtest.h"
#include "server/worker/worker_state.h"

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

}  // namespace
}  // namespace hilbert_ring::server
