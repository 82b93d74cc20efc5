#include "server/cluster/membership.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/process/version.h"
#include "tests/support/captured_log.h"
#include "tests/support/manual_time.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kForLong{60'000};

v1::Heartbeat Beat(const std::string& address) {
  v1::Heartbeat beat;
  beat.set_address(address);
  beat.set_version(std::string(kVersion));
  beat.set_memory_limit_bytes(1 << 30);
  return beat;
}

struct Counts {
  std::atomic<int> joined = 0, left = 0, gone = 0, closed = 0, failed = 0, beats = 0;
  Membership::Hooks Hooks() {
    return {.joined = [this](const Member&) { ++joined; },
            .left = [this](const Member&) { ++left; },
            .gone = [this](const std::string&) { ++gone; },
            .closed = [this](const Member&) { ++closed; },
            .failed = [this](const Member&) { ++failed; },
            .beat = [this](const Member&, const v1::Heartbeat&) { ++beats; }};
  }
};

std::shared_ptr<const Member> Join(Membership& membership, const std::string& address) {
  auto member = membership.Register(Beat(address));
  EXPECT_TRUE(member.ok()) << member.status();
  membership.Reached(**member);
  return *member;
}

Clock::duration RestOf(const Member& member) {
  return member.backs_off_until.load() - Clock::now().time_since_epoch();
}

TEST(Membership, NewsEndTheWaitForThem) {
  Counts counts;
  Membership membership(milliseconds(60'000), counts.Hooks());
  const Deadline late = Clock::now() + std::chrono::seconds(60);
  JobStop stop;
  const int64_t seen = membership.changes();
  std::jthread joins([&] { Join(membership, "127.0.0.1:1"); });
  EXPECT_TRUE(membership.AwaitChange(seen, late, stop).ok());
  EXPECT_EQ(membership.Live().size(), 1u);
  joins.join();
  const Members live = membership.Live();
  const int64_t joined = membership.changes();
  std::jthread leaves([&] { membership.Leave(*live[0]); });
  EXPECT_TRUE(membership.AwaitChange(joined, late, stop).ok());
  EXPECT_TRUE(live[0]->departed.stop_requested());
  EXPECT_TRUE(membership.AwaitChange(seen, late, stop).ok());
  leaves.join();
  const int64_t now = membership.changes();
  EXPECT_TRUE(membership.AwaitChange(now, Clock::now() + milliseconds(10), stop).ok());
  stop.Request(absl::CancelledError("the client left"));
  EXPECT_TRUE(absl::IsCancelled(membership.AwaitChange(now, late, stop)));
  EXPECT_LT(Clock::now(), late);
}

// The workers are chosen later: the plan has a GPU's blocks if a GPU may be among them.
TEST(Membership, EncodersArePlannedForTheMemberThatTakesMost) {
  Counts counts;
  Membership membership(kForLong, counts.Hooks());
  EXPECT_EQ(MostThreads(membership.Live()), 1);
  const auto join = [&](const std::string& address, const std::string& kernel, int threads) {
    v1::Heartbeat beat = Beat(address);
    beat.set_kernel(kernel);
    beat.set_threads(threads);
    const auto member = membership.Register(beat);
    ASSERT_TRUE(member.ok()) << member.status();
    membership.Reached(**member);
  };
  join("127.0.0.1:1", "cpu/avx2", 0);
  EXPECT_EQ(MostThreads(membership.Live()), 1);
  join("127.0.0.1:2", "cpu/avx2", 6);
  EXPECT_EQ(MostThreads(membership.Live()), 6);
  join("127.0.0.1:3", "cuda/native", 0);
  EXPECT_EQ(MostThreads(membership.Live()), 0);
}

TEST(Membership, JoinsAndLeaves) {
  Counts counts;
  Membership membership(kForLong, counts.Hooks());
  const auto a = Join(membership, "127.0.0.1:1");
  const auto b = Join(membership, "127.0.0.1:2");
  EXPECT_EQ(membership.Live(), (Members{a, b}));
  EXPECT_TRUE(membership.Beat(*a, Beat("127.0.0.1:1")));
  membership.Leave(*a);
  membership.Leave(*a);
  EXPECT_TRUE(a->departed.stop_requested());
  EXPECT_FALSE(b->departed.stop_requested());
  EXPECT_FALSE(membership.Beat(*a, Beat("127.0.0.1:1")));
  EXPECT_EQ(membership.Live(), (Members{b}));
  EXPECT_EQ(counts.joined, 2);
  EXPECT_EQ(counts.left, 1);
}

TEST(Membership, AnUnreachableWorkerTakesNoJobsAndHasAReason) {
  Counts counts;
  Membership membership(kForLong, counts.Hooks());
  const auto member = membership.Register(Beat("127.0.0.1:1"));
  ASSERT_TRUE(member.ok());
  EXPECT_TRUE(membership.Live().empty());
  EXPECT_FALSE(membership.ReplyTo(**member).up());
  membership.NotReached(**member, "connection refused");
  EXPECT_TRUE(membership.Beat(**member, Beat("127.0.0.1:1")));
  EXPECT_TRUE(membership.Live().empty());
  EXPECT_EQ(counts.joined, 0);
  EXPECT_EQ(counts.failed, 1);
  EXPECT_THAT(membership.ReplyTo(**member).reason(), HasSubstr("connection refused"));
  const std::vector<v1::ClusterWorker> workers = membership.Describe();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers[0].state(), v1::ClusterWorker::STATE_JOINING);
  EXPECT_THAT(workers[0].reason(), HasSubstr("127.0.0.1:1: connection refused"));
  membership.Reached(**member);
  EXPECT_EQ(membership.Live(), (Members{*member}));
  EXPECT_TRUE(membership.ReplyTo(**member).up());
  EXPECT_EQ(membership.Describe()[0].reason(), "");
}

TEST(Membership, DrainingAndQuarantinedWorkersStayAndTakeNoJobs) {
  Counts counts;
  Membership membership(kForLong, counts.Hooks());
  const auto a = Join(membership, "127.0.0.1:1");
  const auto b = Join(membership, "127.0.0.1:2");
  const auto c = Join(membership, "127.0.0.1:3");
  v1::Heartbeat draining = Beat("127.0.0.1:1");
  draining.set_draining(true);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(membership.Beat(*a, draining));
    EXPECT_EQ(membership.Quarantine(*b), i == 0) << "once";
  }
  EXPECT_FALSE(membership.Quarantine(*a)) << "a draining worker gets no replacement";
  EXPECT_EQ(membership.Live(), (Members{c}));
  EXPECT_EQ(counts.closed, 2);
  EXPECT_EQ(counts.left, 0);
  const std::vector<v1::ClusterWorker> workers = membership.Describe();
  ASSERT_EQ(workers.size(), 3u);
  EXPECT_EQ(workers[0].state(), v1::ClusterWorker::STATE_DRAINING);
  EXPECT_EQ(workers[1].state(), v1::ClusterWorker::STATE_QUARANTINED);
  EXPECT_EQ(workers[2].state(), v1::ClusterWorker::STATE_UP);
  const auto anew = Join(membership, "127.0.0.1:2");
  EXPECT_FALSE(membership.Quarantine(*b)) << "a late verdict does not touch the new process";
  EXPECT_EQ(membership.Live(), (Members{c, anew}));
}

TEST(Membership, AWorkerWhoseSelfTestFailedTakesNoJobsAndIsNamed) {
  Counts counts;
  const testing::CapturedLog log;
  Membership membership(kForLong, counts.Hooks());
  v1::Heartbeat beat = Beat("127.0.0.1:1");
  beat.set_self_test("OUT of token 7 is 1");
  const auto member = membership.Register(beat);
  ASSERT_TRUE(member.ok());
  membership.Reached(**member);
  EXPECT_TRUE(membership.Live().empty());
  const v1::ClusterWorker worker = membership.Describe().at(0);
  EXPECT_EQ(worker.state(), v1::ClusterWorker::STATE_QUARANTINED);
  EXPECT_EQ(worker.reason(), "failed its self-test: OUT of token 7 is 1");
  EXPECT_THAT(log.text(), HasSubstr("worker 127.0.0.1:1 failed its self-test"));
  const auto anew = Join(membership, "127.0.0.1:1");
  EXPECT_EQ(membership.Live(), (Members{anew}));
}

TEST(Membership, AnAddressBelongsToTheProcessThatAnswersThere) {
  Counts counts;
  Membership membership(kForLong, counts.Hooks());
  const auto there = Join(membership, "127.0.0.1:1");
  const auto claims = membership.Register(Beat("127.0.0.1:1"));
  ASSERT_TRUE(claims.ok());
  EXPECT_NE((*claims)->secret, there->secret);
  membership.NotReached(**claims, "another process answers there");
  EXPECT_FALSE(there->departed.stop_requested());
  EXPECT_EQ(membership.Live(), (Members{there}));
  const auto anew = Join(membership, "127.0.0.1:1");
  EXPECT_TRUE(there->departed.stop_requested());
  EXPECT_TRUE((*claims)->departed.stop_requested());
  EXPECT_EQ(membership.Live(), (Members{anew}));
}

TEST(Membership, RefusesOthers) {
  Counts counts;
  Membership membership(kForLong, counts.Hooks());
  v1::Heartbeat beat = Beat("127.0.0.1:1");
  beat.set_version("0.0.0");
  EXPECT_TRUE(absl::IsFailedPrecondition(membership.Register(beat).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(membership.Register(Beat("")).status()));
  EXPECT_TRUE(membership.Describe().empty());
}

TEST(Membership, FailuresInARowBackOffLongerAndSuccessForgetsThem) {
  Counts counts;
  Membership membership(kForLong, counts.Hooks());
  const auto member = Join(membership, "127.0.0.1:1");
  EXPECT_LE(RestOf(*member), Clock::duration(0));
  const testing::CapturedLog log;
  membership.Failed(*member, "its connection broke");
  EXPECT_THAT(log.text(), HasSubstr("worker 127.0.0.1:1 gets no jobs for 1000 ms because it "
                                    "failed one: its connection broke"));
  EXPECT_GT(RestOf(*member), milliseconds(0));
  EXPECT_LE(RestOf(*member), milliseconds(1000));
  EXPECT_EQ(membership.Describe()[0].state(), v1::ClusterWorker::STATE_BACKING_OFF);
  EXPECT_THAT(membership.Describe()[0].reason(), HasSubstr("its connection broke"));
  membership.Failed(*member, "again");
  EXPECT_GT(RestOf(*member), milliseconds(1000));
  EXPECT_LE(RestOf(*member), milliseconds(2000));
  for (int i = 0; i < 100; ++i) membership.Failed(*member, "again");
  EXPECT_GT(RestOf(*member), milliseconds(32'000));
  EXPECT_LE(RestOf(*member), milliseconds(60'000));
  EXPECT_EQ(counts.failed, 102);
  EXPECT_EQ(member->worked_at.load(), Clock::duration(0));
  membership.Worked({member});
  EXPECT_GT(member->worked_at.load(), Clock::duration(0));
  EXPECT_LE(RestOf(*member), Clock::duration(0));
  EXPECT_EQ(membership.Describe()[0].state(), v1::ClusterWorker::STATE_UP);
  EXPECT_EQ(membership.Describe()[0].reason(), "");
  membership.Failed(*member, "its connection broke");
  EXPECT_LE(RestOf(*member), milliseconds(1000));
}

TEST(Membership, SilentWorkersAreDropped) {
  Counts counts;
  testing::ManualTime time;
  Membership membership(milliseconds(200), counts.Hooks(), time);
  const auto silent = Join(membership, "127.0.0.1:1");
  const auto speaking = Join(membership, "127.0.0.1:2");
  for (int i = 0; i < 3; ++i) {
    time.Advance(milliseconds(150));
    EXPECT_TRUE(membership.Beat(*speaking, Beat("127.0.0.1:2")));
  }
  EXPECT_TRUE(testing::Eventually([&] { return silent->departed.stop_requested(); }));
  EXPECT_EQ(membership.Live(), (Members{speaking}));
}

}  // namespace
}  // namespace hilbert_ring::server
