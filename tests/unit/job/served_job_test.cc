#include "server/job/served_job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using server::JobPhase;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> WholeCourse() {
  return {"sizing",    "queued",  "ring",     "starting", "receiving",
          "computing", "sending", "checking", "done"};
}

struct Where {
  bool local = true;
  int64_t tokens = 64;
};

class ServedJobOn : public ::testing::TestWithParam<Where> {};

TEST_P(ServedJobOn, AJobPassesEachPhaseOnce) {
  JobRig rig({.local = GetParam().local});
  auto client = rig.Send(JobRig::Spec(GetParam().tokens));
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_THAT(rig.Phases(), ElementsAreArray(WholeCourse()));
  EXPECT_THAT(rig.errors(), IsEmpty());
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
  EXPECT_EQ(client->resends(), 0);
  EXPECT_EQ(client->admitted(), 2);
  EXPECT_EQ(client->report().retries(), 0);
  EXPECT_EQ(client->report().workers_size(), 2);
  EXPECT_EQ(client->report().ring_generation(), 0) << "nothing is exchanged";
  EXPECT_TRUE(rig.jobs().List("caller").empty());
}

TEST_P(ServedJobOn, MemoryThatAWorkerRefusesIsSentByMessages) {
  JobRig rig({.local = GetParam().local});
  rig.worker(1).TurnMemoryDown();
  auto client = rig.Send(JobRig::Spec(GetParam().tokens));
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
}

INSTANTIATE_TEST_SUITE_P(Workers, ServedJobOn,
                         ::testing::Values(Where{true, 64}, Where{true, kManyTokens},
                                           Where{false, 64}, Where{false, kManyTokens}),
                         [](const auto& info) {
                           return std::string(info.param.local ? "Local" : "Remote") +
                                  std::to_string(info.param.tokens);
                         });

TEST(ServedJob, ARingIsFormedOnceForJobsThatEndWell) {
  JobRig rig;
  const JobSpec spec = PlainSpec({.segment = 64});
  for (int job = 0; job < 2; ++job) {
    auto client = rig.Send(spec);
    ASSERT_TRUE(rig.Await(*client).ok());
    EXPECT_EQ(client->report().ring_generation(), 1);
  }
  EXPECT_EQ(rig.worker(0).rings(), 1);
  EXPECT_EQ(rig.worker(0).opens()[1].ring_id(), rig.worker(1).opens()[0].ring_id());
}

TEST(ServedJob, ARingOfAJobThatFailedIsFormedAnew) {
  JobRig rig({.settings = {.max_retries = 0}});
  rig.worker(0).At(Moment::kRowsDone,
                   Say(absl::DeadlineExceededError("it took too long"), "JOB_TIMEOUT"));
  const JobSpec spec = PlainSpec({.segment = 64});
  auto failed = rig.Send(spec);
  EXPECT_EQ(wire::ReasonOf(rig.Await(*failed)), "JOB_TIMEOUT");
  auto client = rig.Send(spec);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().ring_generation(), 2);
  EXPECT_EQ(rig.worker(1).rings(), 2);
}

TEST(ServedJob, ARingThatCannotBeFormedIsALostWorker) {
  JobRig rig;
  rig.worker(1).AtRing(
      [](auto&, auto&) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"); });
  auto client = rig.Send(PlainSpec({.segment = 64}));
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 1) << "the unreachable one is excluded";
  EXPECT_EQ(client->WrongRows(), 0);
  const auto phases = rig.Phases();
  EXPECT_THAT(std::vector(phases.begin(), phases.begin() + 5),
              ElementsAre("sizing", "queued", "ring", "queued", "ring"));
}

TEST(ServedJob, AJobWithoutWorkersIsRefused) {
  JobRig rig;
  rig.Leave(0);
  rig.Leave(1);
  auto client = rig.Open();
  const absl::Status status = rig.Await(*client);
  EXPECT_EQ(wire::ReasonOf(status), "NO_WORKERS") << status;
  EXPECT_THAT(rig.Phases(), ElementsAre("sizing", "failed"));
}

TEST(ServedJob, ANewerAttemptEndsTheOlderOne) {
  JobRig rig;
  Hold hold;
  rig.worker(0).At(Moment::kRowsDone, hold.action());
  auto older = rig.Send();
  ASSERT_TRUE(hold.AwaitHeld());
  auto newer = rig.Send(JobRig::Spec(), {.attempt = 1});
  EXPECT_EQ(wire::ReasonOf(rig.Await(*older)), "ATTEMPT_FENCED");
  EXPECT_TRUE(rig.Await(*newer).ok());
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); }));
}

TEST(ServedJob, AJobWaitsForItsTurn) {
  JobRig rig;
  Hold hold;
  rig.worker(0).At(Moment::kRowsDone, hold.action());
  auto first = rig.Send(JobRig::Spec(), {.job_id = "first"});
  ASSERT_TRUE(hold.AwaitHeld());
  // The job is too long for an express lane.
  JobSpec spec = PlainSpec({.tokens = 65536, .heads = 1, .dim = 8});
  auto second = rig.Open(spec, {.job_id = "second"});
  ASSERT_TRUE(Eventually([&] { return rig.jobs_in(JobPhase::kQueued) == 1; }));
  EXPECT_THAT(rig.Phases("second"), ElementsAre("sizing", "queued"));
  hold.Release();
  EXPECT_TRUE(rig.Await(*first).ok());
  second->SendAll();
  EXPECT_TRUE(rig.Await(*second).ok());
  EXPECT_THAT(rig.Phases("second"), ElementsAreArray(WholeCourse()));
}

TEST(ServedJob, AJobThatLostAllItsWorkersWaitsForOthers) {
  JobRig rig;
  Hold holds[2];
  for (int i : {0, 1}) rig.worker(i).At(Moment::kRowsDone, holds[i].action());
  auto client = rig.Send();
  ASSERT_TRUE(holds[0].AwaitHeld() && holds[1].AwaitHeld());
  rig.Leave(0);
  rig.Leave(1);
  ASSERT_TRUE(rig.Until([&] { return rig.jobs_in(JobPhase::kWaitingForWorkers) == 1; }));
  EXPECT_EQ(rig.jobs().List("caller")[0].state(), v1::Job::STATE_WAITING_FOR_WORKERS);
  EXPECT_EQ(rig.jobs().List("caller")[0].workers(), 0);
  rig.Join(0);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_THAT(rig.Phases(),
              ElementsAre("sizing", "queued", "ring", "starting", "receiving", "computing",
                          "queued", "waiting_for_workers", "queued", "ring", "starting",
                          "receiving", "computing", "sending", "checking", "done"));
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->resends(), 0) << "the rows are here";
}

TEST(ServedJob, AJobWaitsForWorkersForTheRecoveryTimeout) {
  JobRig rig({.workers = 1, .settings = {.recovery_timeout = std::chrono::minutes(3)}});
  Hold hold;
  rig.worker(0).At(Moment::kRowsDone, hold.action());
  auto client = rig.Send();
  ASSERT_TRUE(hold.AwaitHeld());
  rig.Leave(0);
  ASSERT_TRUE(rig.Until([&] { return rig.jobs_in(JobPhase::kWaitingForWorkers) == 1; }));
  ASSERT_TRUE(rig.time().AwaitWait(std::chrono::minutes(3)));
  rig.time().Advance(std::chrono::minutes(2));
  ASSERT_TRUE(rig.time().AwaitWait(std::chrono::minutes(1)));
  rig.time().Advance(std::chrono::minutes(1));
  const absl::Status status = client->Await();
  EXPECT_EQ(wire::ReasonOf(status), "NO_WORKERS") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("within 180000 ms"));
  EXPECT_EQ(rig.Phases().back(), "failed");
}

struct CancelAt {
  Moment moment;
  int64_t tokens;
  const char* name;
};
class CancelledAt : public ::testing::TestWithParam<CancelAt> {};

TEST_P(CancelledAt, TheJobEndsAndItsWorkersAreFree) {
  JobRig rig;
  Hold hold;
  rig.worker(1).At(GetParam().moment, hold.action());
  auto client = rig.Send(JobRig::Spec(GetParam().tokens));
  ASSERT_TRUE(hold.AwaitHeld());
  ASSERT_TRUE(rig.jobs().Cancel("caller", "job", "the test").ok());
  const absl::Status status = client->Await();
  EXPECT_EQ(wire::ReasonOf(status), "CANCELLED_BY_CALLER") << status;
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); }));
  EXPECT_EQ(rig.Phases().back(), "failed");
  EXPECT_EQ(rig.worker(1).runs(), 1) << "a cancel is no reason to try again";
  EXPECT_THAT(rig.errors(), IsEmpty());
  auto next = rig.Send();
  EXPECT_TRUE(rig.Await(*next).ok());
  EXPECT_EQ(next->report().workers_size(), 2) << "no worker was blamed";
}

INSTANTIATE_TEST_SUITE_P(Moments, CancelledAt,
                         ::testing::Values(CancelAt{Moment::kOpened, kManyTokens, "Starting"},
                                           CancelAt{Moment::kOpened, 64, "ReceivingBeforeReady"},
                                           CancelAt{Moment::kReady, kManyTokens, "Receiving"},
                                           CancelAt{Moment::kRowsDone, 64, "Computing"},
                                           CancelAt{Moment::kHalfOut, 64, "ComputingWithOutputs"},
                                           CancelAt{Moment::kComputed, 64, "Sending"},
                                           CancelAt{Moment::kFigures, 64, "Ending"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ServedJob, ACancelEndsAJobThatWaits) {
  for (const bool lost_workers : {false, true}) {
    JobRig rig({.workers = 1});
    Hold hold;
    rig.worker(0).At(Moment::kRowsDone, hold.action());
    auto first = rig.Send(JobRig::Spec(), {.job_id = "first"});
    ASSERT_TRUE(hold.AwaitHeld());
    std::unique_ptr<FakeClient> second;
    if (lost_workers) {
      rig.Leave(0);
    } else {
      second = rig.Open(PlainSpec({.tokens = 65536, .heads = 1, .dim = 8}), {.job_id = "second"});
    }
    const JobPhase phase = lost_workers ? JobPhase::kWaitingForWorkers : JobPhase::kQueued;
    const std::string job = lost_workers ? "first" : "second";
    ASSERT_TRUE(rig.Until([&] { return rig.jobs_in(phase) == 1; }));
    ASSERT_TRUE(rig.jobs().Cancel("caller", job, "the test").ok());
    EXPECT_EQ(wire::ReasonOf((lost_workers ? first : second)->Await()), "CANCELLED_BY_CALLER");
    EXPECT_EQ(rig.Phases(job).back(), "failed");
  }
}

TEST(ServedJob, AClientThatGoesAwayEndsItsJob) {
  JobRig rig;
  Hold hold;
  rig.worker(0).At(Moment::kRowsDone, hold.action());
  auto client = rig.Send();
  ASSERT_TRUE(hold.AwaitHeld());
  client->Cancel();
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); }));
  EXPECT_TRUE(Eventually([&] { return rig.jobs().List("caller").empty(); }));
  EXPECT_EQ(rig.Phases().back(), "failed");
  EXPECT_TRUE(Eventually([&] {
    const auto lines = rig.lines();
    return std::ranges::any_of(lines, [](const std::string& line) {
      return line.find("CLIENT_CANCELLED") != std::string::npos;
    });
  }));
}

TEST(ServedJob, ACancelDuringThePlanNamesTheCaller) {
  JobRig rig;
  rig.HoldAt("validating -> sizing");
  auto client = rig.Send();
  ASSERT_TRUE(rig.AwaitHeld());
  ASSERT_TRUE(rig.jobs().Cancel("caller", "job", "the test").ok());
  rig.Release();
  EXPECT_EQ(wire::ReasonOf(client->Await()), "CANCELLED_BY_CALLER");
}

TEST(ServedJob, AWorkerHasWordOfRowsBeforeAllHaveCome) {
  JobRig rig({.workers = 1});
  auto client = rig.Send(JobRig::Spec(kManyTokens));
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(rig.worker(0).arrived(), kManyTokens / 2);
}

}  // namespace
}  // namespace hilbert_ring::testing
