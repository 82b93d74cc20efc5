#include <string>

#include "engine/base/peer_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::IsEmpty;

constexpr int kRowsToCheck = 64;

JobSpec SpanningSpec() { return PlainSpec({.segment = 64}); }

void ExpectTheNextJobOnBothWorkers(JobRig& rig) {
  auto next = rig.Send(JobRig::Spec(), {.job_id = "next"});
  ASSERT_TRUE(rig.Await(*next).ok());
  EXPECT_EQ(next->report().workers_size(), 2) << "no worker was blamed";
  EXPECT_EQ(next->WrongRows(), 0);
}

TEST(FormingRing, ThatLosesAWorkerIsGivenUpAndTheJobEndsOnTheOther) {
  JobRig rig;
  Hold hold;
  rig.worker(1).AtRing(hold.ring_action());
  auto client = rig.Send(SpanningSpec());
  ASSERT_TRUE(hold.AwaitHeld());
  EXPECT_EQ(rig.jobs_in(server::JobPhase::kRing), 1);
  rig.Leave(1);
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); })) << "the call goes on";
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(rig.worker(1).runs(), 0);
  EXPECT_THAT(rig.errors(), IsEmpty());
}

TEST(FormingRing, ExcludesAPeerThatOthersDoNotReach) {
  JobRig rig({.workers = 3});
  const absl::Status error = absl::UnavailableError("connecting to rank 1: refused");
  rig.worker(0).AtEachRing([&error](auto&, const v1::PrepareRingRequest& request) {
    return request.size() < 3 ? grpc::Status::OK : wire::ToGrpc(WithPeer(error, 1));
  });
  auto client = rig.Send(SpanningSpec());
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client->report().retries(), 2);
  EXPECT_EQ(client->report().workers_size(), 2);
  EXPECT_EQ(rig.failures(1), 1);
  EXPECT_EQ(rig.failures(0), 0);
  EXPECT_EQ(rig.failures(2), 0);
}

// The report may be of a peer, but without this worker the others can go on.
TEST(FormingRing, ExcludesAWorkerThatAloneFailsTwice) {
  for (const absl::Status& error :
       {absl::UnavailableError("a peer is gone"), absl::InternalError("no socket")}) {
    JobRig rig;
    rig.worker(0).AtEachRing([&error](auto&, auto&) { return wire::ToGrpc(error); });
    auto client = rig.Send(SpanningSpec());
    const absl::Status status = rig.Await(*client);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(client->report().retries(), 2);
    EXPECT_EQ(client->report().workers_size(), 1);
    EXPECT_EQ(client->WrongRows(), 0);
    EXPECT_EQ(rig.failures(0), 1);
    EXPECT_EQ(rig.failures(1), 0);
  }
}

TEST(FormingRing, OfAJobThatIsCancelledIsGivenUp) {
  JobRig rig;
  Hold hold;
  rig.worker(1).AtRing(hold.ring_action());
  auto client = rig.Send(SpanningSpec());
  ASSERT_TRUE(hold.AwaitHeld());
  ASSERT_TRUE(rig.jobs().Cancel("caller", "job", "the test").ok());
  const absl::Status status = rig.Await(*client);
  EXPECT_EQ(wire::ReasonOf(status), "CANCELLED_BY_CALLER") << status;
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); })) << "the call goes on";
  EXPECT_EQ(rig.Phases().back(), "failed");
  EXPECT_EQ(rig.worker(0).runs(), 0);
  EXPECT_THAT(rig.errors(), IsEmpty());
  ExpectTheNextJobOnBothWorkers(rig);
}

TEST(Check, EndsWhenTheJobIsCancelled) {
  JobRig rig({.settings = {.check_rows = kRowsToCheck}});
  // An unstopped check would find it, and two jobs quarantine the worker.
  rig.worker(1).set_error(1);
  for (const std::string job : {"first", "second"}) {
    rig.HoldAt("sending -> checking");
    auto client = rig.Send(JobRig::Spec(), {.job_id = job});
    ASSERT_TRUE(rig.AwaitHeld());
    ASSERT_TRUE(rig.jobs().Cancel("caller", job, "the test").ok());
    rig.Release();
    const absl::Status status = rig.Await(*client);
    EXPECT_EQ(wire::ReasonOf(status), "CANCELLED_BY_CALLER") << status;
    EXPECT_EQ(rig.Phases(job).back(), "failed");
  }
  rig.worker(1).set_error(0);
  ExpectTheNextJobOnBothWorkers(rig);
}

TEST(Check, NeedsNoWorker) {
  JobRig rig({.settings = {.check_rows = kRowsToCheck}});
  rig.HoldAt("sending -> checking");
  auto client = rig.Send();
  ASSERT_TRUE(rig.AwaitHeld());
  rig.Leave(0);
  rig.Leave(1);
  rig.Release();
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client->report().retries(), 0) << "all rows have left";
  EXPECT_EQ(client->report().rows_checked(), kRowsToCheck);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
}

}  // namespace
}  // namespace hilbert_ring::testing
