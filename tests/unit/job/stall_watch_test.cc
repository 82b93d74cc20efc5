#include "server/job/stall_watch.h"

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kTimeout{30};
const Clock::time_point kStart = Clock::time_point() + seconds(1000);

std::vector<bool> All(int workers) { return std::vector<bool>(workers, true); }

TEST(StallWatch, AMovingWorkerExcusesTheOthers) {
  StallWatch watch(kTimeout, {0, 0, 0});
  watch.Begin(kStart);
  watch.Moved(1, kStart + seconds(20));
  EXPECT_FALSE(watch.Find(All(3), kStart + seconds(40)));
  EXPECT_FALSE(watch.Find(All(3), kStart + seconds(50) - milliseconds(1)));
  EXPECT_TRUE(watch.Find(All(3), kStart + seconds(50)));
}

TEST(StallWatch, AWorkerThatIsNotAwaitedIsNoCulpritAndNoExcuse) {
  StallWatch watch(kTimeout, {0, 0});
  watch.Begin(kStart);
  watch.Waits(1, 1, kStart);
  watch.Moved(0, kStart + kTimeout);  // rank 0 has done its part
  const auto stall = watch.Find({false, true}, kStart + kTimeout);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 1);
  EXPECT_FALSE(watch.Find({false, false}, kStart + kTimeout));
}

TEST(StallWatch, AWaitInTheExchangeGetsTheTimeOfASlowNetwork) {
  constexpr int64_t kBytes = 50'000'000;  // 5 s at 10 MB/s
  StallWatch watch(kTimeout, {kBytes});
  watch.Begin(kStart);
  EXPECT_TRUE(watch.Find(All(1), kStart + kTimeout)) << "it computes";
  watch.Waits(0, 1, kStart);
  EXPECT_FALSE(watch.Find(All(1), kStart + kTimeout + milliseconds(4999)));
  EXPECT_TRUE(watch.Find(All(1), kStart + kTimeout + seconds(5)));
  watch.Waits(0, 0, kStart);
  EXPECT_TRUE(watch.Find(All(1), kStart + kTimeout));
}

TEST(StallWatch, AWorkerWhoseOutputsWaitForTheClientIsNotStalled) {
  StallWatch watch(kTimeout, {0, 0});
  watch.Begin(kStart);
  watch.Forwarding(1, true, kStart + seconds(1));
  EXPECT_FALSE(watch.Find(All(2), kStart + seconds(500)));
  watch.Forwarding(1, false, kStart + seconds(501));
  EXPECT_FALSE(watch.Find(All(2), kStart + seconds(530)));
  EXPECT_TRUE(watch.Find(All(2), kStart + seconds(531)));
}

TEST(StallWatch, CountsTheTimeThatOutputsWereForwarded) {
  StallWatch watch(kTimeout, {0});
  watch.Forwarding(0, true, kStart - seconds(100));
  watch.Begin(kStart);
  EXPECT_EQ(watch.ForwardedFor(0, kStart + seconds(2)), seconds(2));
  watch.Forwarding(0, false, kStart + seconds(3));
  EXPECT_EQ(watch.ForwardedFor(0, kStart + seconds(10)), seconds(3));
  watch.Forwarding(0, true, kStart + seconds(10));
  watch.Forwarding(0, true, kStart + seconds(11));
  EXPECT_EQ(watch.ForwardedFor(0, kStart + seconds(12)), seconds(5));
  watch.Begin(kStart + seconds(20));
  EXPECT_EQ(watch.ForwardedFor(0, kStart + seconds(20)), seconds(0));
}

TEST(StallWatch, AWaitBeginsAnew) {
  StallWatch watch(kTimeout, {0});
  watch.Begin(kStart);
  watch.Begin(kStart + seconds(25));
  EXPECT_FALSE(watch.Find(All(1), kStart + seconds(40)));
}

}  // namespace
}  // namespace hilbert_ring::server
