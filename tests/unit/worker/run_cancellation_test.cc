#include "server/worker/run_cancellation.h"

#include "gtest/gtest.h"
#include "tests/support/manual_time.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::microseconds;

TEST(RunCancellation, AsksOnceInAnInterval) {
  testing::ManualTime time;
  int asked = 0;
  const RunCancellation cancellation(
      [&asked] {
        ++asked;
        return false;
      },
      time);
  for (int tile = 0; tile < 100; ++tile) EXPECT_FALSE(cancellation.IsCancelled());
  EXPECT_EQ(asked, 0);
  time.Advance(RunCancellation::kInterval);
  for (int tile = 0; tile < 100; ++tile) EXPECT_FALSE(cancellation.IsCancelled());
  EXPECT_EQ(asked, 1);
}

TEST(RunCancellation, SeesACancellationAnIntervalLaterAtMost) {
  testing::ManualTime time;
  bool cancelled = false;
  const RunCancellation cancellation([&cancelled] { return cancelled; }, time);
  time.Advance(RunCancellation::kInterval);
  EXPECT_FALSE(cancellation.IsCancelled());
  cancelled = true;
  time.Advance(RunCancellation::kInterval - microseconds(1));
  EXPECT_FALSE(cancellation.IsCancelled());
  time.Advance(microseconds(1));
  EXPECT_TRUE(cancellation.IsCancelled());
}

}  // namespace
}  // namespace hilbert_ring::server
