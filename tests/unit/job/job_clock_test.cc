// What ends a job because of time: its own limits and its client's pace.
#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using server::JobPhase;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr milliseconds kLook{250};  // how often a run looks for workers that do not move

TEST(JobClock, AJobComputesForTheJobTimeoutAndNoLonger) {
  JobRig rig({.settings = {.job_timeout = minutes(10)}});
  Hold hold;
  rig.worker(1).At(Moment::kRowsDone, hold.action());
  auto client = rig.Open();
  client->SendAll();
  ASSERT_TRUE(hold.AwaitHeld());
  ASSERT_TRUE(rig.AwaitPhase(JobPhase::kComputing));
  ASSERT_TRUE(rig.time().AwaitWait(kLook));
  EXPECT_EQ(rig.worker(1).opens()[0].compute_timeout_ms(), 600'000);
  // The worker has its own limit, and half a minute to say that it has passed.
  rig.time().Advance(minutes(10) + seconds(30) - milliseconds(1));
  ASSERT_TRUE(rig.time().AwaitWait(kLook));
  EXPECT_FALSE(hold.cancelled());
  rig.time().Advance(kLook);
  const absl::Status status = client->Await();
  EXPECT_EQ(wire::ReasonOf(status), "JOB_TIMEOUT") << status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(rig.worker(1).address()));
  EXPECT_EQ(rig.worker(1).runs(), 1) << "another try would take as long";
}

TEST(JobClock, AClientThatSendsNothingIsIdle) {
  JobRig rig({.settings = {.idle_timeout = minutes(4)}});
  auto client = rig.Open();
  client->Send(v1::TENSOR_Q, 0, 32);
  ASSERT_TRUE(Eventually([&] {
    const auto jobs = rig.jobs().List("caller");
    return !jobs.empty() && jobs[0].fraction() > 0;
  }));
  ASSERT_TRUE(rig.time().AwaitWait(minutes(4)));
  rig.time().Advance(minutes(4) - milliseconds(1));
  ASSERT_TRUE(rig.time().AwaitWait(milliseconds(1)));
  rig.time().Advance(milliseconds(1));
  const absl::Status status = client->Await();
  EXPECT_EQ(wire::ReasonOf(status), "CLIENT_IDLE") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not sent anything for 240 s"));
  EXPECT_EQ(rig.worker(0).runs(), 1);
}

TEST(JobClock, AClientThatSendsTooSlowlyIsSlow) {
  JobRig rig({.settings = {.idle_timeout = minutes(4), .least_rate_bytes = 1000}});
  auto client = rig.Open();
  // A kilobyte after each two minutes: about 119 s behind each time.
  for (const seconds left : {seconds(240), seconds(121), seconds(2)}) {
    ASSERT_TRUE(rig.time().AwaitWait(left - seconds(1), left + seconds(1)));
    if (left < minutes(1)) break;
    rig.time().Advance(minutes(2));
    client->Send(v1::TENSOR_Q, left == minutes(4) ? 0 : 8, 8);
  }
  rig.time().Advance(seconds(4));
  const absl::Status status = client->Await();
  EXPECT_EQ(wire::ReasonOf(status), "CLIENT_SLOW") << status;
}

TEST(JobClock, AJobInTheQueueWaitsForTheQueueTimeout) {
  JobRig rig({.workers = 1, .settings = {.queue_timeout = minutes(2)}});
  Hold hold;
  rig.worker(0).At(Moment::kRowsDone, hold.action());
  auto first = rig.Open(JobRig::Spec(), {.job_id = "first"});
  first->SendAll();
  ASSERT_TRUE(hold.AwaitHeld());
  auto second = rig.Open(PlainSpec({.tokens = 65536, .heads = 1, .dim = 8}), {.job_id = "second"});
  ASSERT_TRUE(rig.AwaitPhase(JobPhase::kQueued));
  ASSERT_TRUE(rig.time().AwaitWait(milliseconds(500)));
  rig.time().Advance(minutes(2));
  const absl::Status status = rig.Await(*second);
  EXPECT_EQ(wire::ReasonOf(status), "QUEUE_TIMEOUT") << status;
  hold.Release();
  EXPECT_TRUE(rig.Await(*first).ok()) << "whose compute has no such limit";
}

}  // namespace
}  // namespace hilbert_ring::testing
