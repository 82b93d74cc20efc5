#include "server/worker/run_cancellation.h"

#include "gtest/gtest.h"
#include "tests/support/manual_time.h"

namespace hilbert_ring::server {
namespace {

TEST(RunCancellation, AsksOnceInAnInterval) {
  testing::ManualTime time;
  int asked = 0;
  bool cancelled = false;
  const RunCancellation cancellation(
      [&] {
        ++asked;
        return cancelled;
      },
      time);
  for (int tile = 0; tile < 100; ++tile) EXPECT_FALSE(cancellation.IsCancelled());
  EXPECT_EQ(asked, 0);
  time.Advance(RunCancellation::kInterval);
  for (int tile = 0; tile < 100; ++tile) EXPECT_FALSE(cancellation.IsCancelled());
  EXPECT_EQ(asked, 1);
  cancelled = true;
  time.Advance(RunCancellation::kInterval - std::chrono::microseconds(1));
  EXPECT_FALSE(cancellation.IsCancelled());
  time.Advance(std::chrono::microseconds(1));
  EXPECT_TRUE(cancellation.IsCancelled());
}

}  // namespace
}  // namespace hilbert_ring::server
