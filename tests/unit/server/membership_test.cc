#include "server/coordinator/membership.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "server/process/version.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

v1::Heartbeat Beat(const std::string& address, uint64_t incarnation) {
  v1::Heartbeat beat;
  beat.set_address(address);
  beat.set_incarnation(incarnation);
  beat.set_version(std::string(kVersion));
  beat.set_memory_limit_bytes(1 << 30);
  return beat;
}

struct Counts {
  std::atomic<int> joined = 0, left = 0, closed = 0;
  Membership::Hooks Hooks() {
    return {.joined = [this](const Member&) { ++joined; },
            .left = [this](const Member&) { ++left; },
            .closed = [this](const Member&) { ++closed; },
            .beat = [](const Member&, const v1::Heartbeat&) {}};
  }
};

TEST(Membership, JoinsAndLeaves) {
  Counts counts;
  Membership membership(milliseconds(60'000), counts.Hooks());
  const auto a = membership.Join(Beat("127.0.0.1:1", 5));
  const auto b = membership.Join(Beat("127.0.0.1:2", 6));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(membership.Live(), (Members{*a, *b}));
  EXPECT_TRUE(membership.Beat(**a, Beat("127.0.0.1:1", 5)));
  membership.Leave(**a);
  membership.Leave(**a);
  EXPECT_TRUE((*a)->departed.stop_requested());
  EXPECT_FALSE((*b)->departed.stop_requested());
  EXPECT_FALSE(membership.Beat(**a, Beat("127.0.0.1:1", 5)));
  EXPECT_EQ(membership.Live(), (Members{*b}));
  EXPECT_EQ(counts.joined, 2);
  EXPECT_EQ(counts.left, 1);
}

TEST(Membership, ThoseThatDrainOrAreDistrustedStayAndTakeNoJobs) {
  Counts counts;
  Membership membership(milliseconds(60'000), counts.Hooks());
  const auto a = membership.Join(Beat("127.0.0.1:1", 5));
  const auto b = membership.Join(Beat("127.0.0.1:2", 6));
  const auto c = membership.Join(Beat("127.0.0.1:3", 7));
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  v1::Heartbeat draining = Beat("127.0.0.1:1", 5);
  draining.set_draining(true);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(membership.Beat(**a, draining));
    membership.Distrust(**b);
  }
  membership.Distrust(**a);
  EXPECT_EQ(membership.Live(), (Members{*c}));
  EXPECT_EQ(counts.closed, 2);
  EXPECT_EQ(counts.left, 0);
  const std::vector<v1::ClusterWorker> workers = membership.Describe();
  ASSERT_EQ(workers.size(), 3u);
  EXPECT_EQ(workers[0].state(), v1::ClusterWorker::STATE_DRAINING);
  EXPECT_EQ(workers[1].state(), v1::ClusterWorker::STATE_DISTRUSTED);
  EXPECT_EQ(workers[2].state(), v1::ClusterWorker::STATE_UP);
  // Another process in its place starts with a clean sheet.
  const auto anew = membership.Join(Beat("127.0.0.1:2", 8));
  ASSERT_TRUE(anew.ok());
  EXPECT_EQ(membership.Live(), (Members{*c, *anew}));
}

TEST(Membership, AnAddressHasOneIncarnation) {
  Counts counts;
  Membership membership(milliseconds(60'000), counts.Hooks());
  const auto old_one = membership.Join(Beat("127.0.0.1:1", 5));
  const auto new_one = membership.Join(Beat("127.0.0.1:1", 7));
  ASSERT_TRUE(new_one.ok());
  EXPECT_TRUE((*old_one)->departed.stop_requested());
  EXPECT_TRUE(absl::IsAlreadyExists(membership.Join(Beat("127.0.0.1:1", 6)).status()));
  EXPECT_EQ(membership.Live(), (Members{*new_one}));
}

TEST(Membership, RefusesOthers) {
  Counts counts;
  Membership membership(milliseconds(60'000), counts.Hooks());
  v1::Heartbeat beat = Beat("127.0.0.1:1", 5);
  beat.set_version("0.0.0");
  EXPECT_TRUE(absl::IsFailedPrecondition(membership.Join(beat).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(membership.Join(Beat("", 5)).status()));
  EXPECT_TRUE(membership.Live().empty());
}

TEST(Membership, SilentWorkersAreDropped) {
  Counts counts;
  Membership membership(milliseconds(200), counts.Hooks());
  const auto silent = membership.Join(Beat("127.0.0.1:1", 5));
  const auto speaking = membership.Join(Beat("127.0.0.1:2", 6));
  const auto end = Clock::now() + milliseconds(600);
  while (Clock::now() < end) {
    EXPECT_TRUE(membership.Beat(**speaking, Beat("127.0.0.1:2", 6)));
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE((*silent)->departed.stop_requested());
  EXPECT_EQ(membership.Live(), (Members{*speaking}));
}

}  // namespace
}  // namespace hilbert_ring::server
