#include "server/worker/cancel_look.h"

#include "gtest/gtest.h"
#include "tests/support/manual_time.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::microseconds;

TEST(CancelLook, AsksOnceInAnInterval) {
  testing::ManualTime time;
  int asked = 0;
  const CancelLook look(
      [&asked] {
        ++asked;
        return false;
      },
      time);
  for (int tile = 0; tile < 100; ++tile) EXPECT_FALSE(look.IsCancelled());
  EXPECT_EQ(asked, 0);
  time.Advance(CancelLook::kInterval);
  for (int tile = 0; tile < 100; ++tile) EXPECT_FALSE(look.IsCancelled());
  EXPECT_EQ(asked, 1);
}

TEST(CancelLook, SeesACancellationAnIntervalLaterAtMost) {
  testing::ManualTime time;
  bool cancelled = false;
  const CancelLook look([&cancelled] { return cancelled; }, time);
  time.Advance(CancelLook::kInterval);
  EXPECT_FALSE(look.IsCancelled());
  cancelled = true;
  time.Advance(CancelLook::kInterval - microseconds(1));
  EXPECT_FALSE(look.IsCancelled());
  time.Advance(microseconds(1));
  EXPECT_TRUE(look.IsCancelled());
}

}  // namespace
}  // namespace hilbert_ring::server
