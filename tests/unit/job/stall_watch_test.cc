#include "server/job/stall_watch.h"

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr seconds kTimeout{30};
const Clock::time_point kStart = Clock::time_point() + seconds(1000);

std::vector<bool> All(int workers) { return std::vector<bool>(workers, true); }

struct Replies {
  double fraction = 0;
  int64_t step = 0, layer = 0, file_bytes = 0;
};

v1::RunProgress Progress(const Replies& said) {
  v1::RunProgress progress;
  progress.set_fraction(said.fraction);
  progress.set_waiting_step(said.step);
  progress.set_layer(said.layer);
  progress.set_file_bytes(said.file_bytes);
  return progress;
}

TEST(StallWatch, OneThatMovesKeepsTheOthersFromBeingStalled) {
  StallWatch watch(kTimeout, {0, 0, 0});
  watch.Begin(kStart);
  watch.Forwarding(1, false, kStart + seconds(20));
  EXPECT_FALSE(watch.Find(All(3), kStart + seconds(40)));
  EXPECT_FALSE(watch.Find(All(3), kStart + seconds(50) - milliseconds(1)));
  EXPECT_TRUE(watch.Find(All(3), kStart + seconds(50)));
}

TEST(StallWatch, AWorkerThatIsNotAwaitedIsNoCulpritAndNoExcuse) {
  StallWatch watch(kTimeout, {0, 0});
  watch.Begin(kStart);
  watch.Waits(1, 1, kStart);
  watch.Forwarding(0, false, kStart + kTimeout);  // it has done its part
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

TEST(StallWatch, WhoComputesMovesWhenItComesFurther) {
  StallWatch watch(kTimeout, {0});
  const auto moves = [&](const Replies& said) {
    return watch.Progressed(0, Progress(said), true, kStart);
  };
  EXPECT_TRUE(moves({.fraction = 0.5}));
  EXPECT_FALSE(moves({.fraction = 0.5}));
  EXPECT_FALSE(moves({.fraction = 0.25}));
  EXPECT_FALSE(moves({.fraction = 0.5})) << "it was there before";
  EXPECT_TRUE(moves({.fraction = 0.6}));
  EXPECT_TRUE(moves({.layer = 2}));
  EXPECT_FALSE(moves({.layer = 1}));
  EXPECT_TRUE(moves({.step = 1})) << "each layer has the steps of the exchange again";
  EXPECT_TRUE(moves({.step = 0}));
  EXPECT_EQ(watch.fraction(), 0.6);
  EXPECT_EQ(watch.layer(), 2);
}

TEST(StallWatch, WhoHasComputedDoesNotMoveByWords) {
  StallWatch watch(kTimeout, {0});
  EXPECT_FALSE(watch.Progressed(
      0, Progress({.fraction = 0.5, .step = 3, .layer = 1, .file_bytes = 7}), false, kStart));
}

// The worker reports no progress while the disk takes its outputs.
TEST(StallWatch, WhoHasFilesMayRepeatItselfForAsLongAsADiskTakes) {
  StallWatch watch(kTimeout, {0}, 60'000'000'000);  // 100 minutes at 10 MB/s
  watch.Begin(kStart);
  const auto moves_at = [&](Clock::duration after, int64_t bytes) {
    return watch.Progressed(0, Progress({.fraction = 0.5, .file_bytes = bytes}), false,
                            kStart + after);
  };
  EXPECT_TRUE(moves_at(minutes(109), 0));
  EXPECT_TRUE(moves_at(minutes(109), 1));
  EXPECT_TRUE(moves_at(minutes(218), 1));
  EXPECT_FALSE(moves_at(minutes(219), 1));
  EXPECT_FALSE(moves_at(minutes(219) + seconds(1), 0));
  EXPECT_TRUE(moves_at(minutes(300), 2));
  watch.Begin(kStart + minutes(500));
  EXPECT_TRUE(moves_at(minutes(501), 2)) << "another wait";
}

TEST(StallWatch, OfFilesWordsOfComputeCountWhileItComputes) {
  StallWatch watch(kTimeout, {0}, 0);
  watch.Begin(kStart);
  const Clock::time_point later = kStart + minutes(11);
  EXPECT_TRUE(watch.Progressed(0, Progress({.fraction = 0.5}), true, later));
  EXPECT_FALSE(watch.Progressed(0, Progress({.fraction = 0.6, .step = 1}), false, later));
}

}  // namespace
}  // namespace hilbert_ring::server
