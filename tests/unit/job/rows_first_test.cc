#include <chrono>
#include <memory>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using server::JobPhase;

const FakeClientOptions kFollows{.input_follows = true};
const FakeClientOptions kOneAnswer{.input_follows = true, .one_answer = true};

// Waits of the service for rows that follow and for an answer, by the machine's own time.
constexpr std::chrono::milliseconds kRowsFollowWithin{100}, kAnswersWithin{20};

// Other programs may delay several tries.
struct Ran {
  std::unique_ptr<JobRig> rig;
  std::unique_ptr<FakeClient> client;
};
Ran RunWithin(std::chrono::milliseconds limit, const FakeClientOptions& options,
              void (FakeWorker::*as)()) {
  for (int tries = 0; tries < 100; ++tries) {
    Ran ran = {.rig = std::make_unique<JobRig>(JobRigOptions{.workers = 1}), .client = nullptr};
    (ran.rig->worker(0).*as)();
    const auto began = std::chrono::steady_clock::now();
    ran.client = ran.rig->Send(JobRig::Spec(), options);
    const absl::Status end = ran.rig->Await(*ran.client);
    if (!end.ok() || std::chrono::steady_clock::now() - began < limit) {
      EXPECT_TRUE(end.ok()) << end;
      return ran;
    }
  }
  ADD_FAILURE() << "no job of a hundred took less than " << limit.count() << " ms";
  return {};
}

TEST(RowsFirst, TheWorkerGetsOneMessage) {
  const Ran ran = RunWithin(kRowsFollowWithin, kFollows, &FakeWorker::AnswerWhole);
  ASSERT_FALSE(HasFailure());
  JobRig& rig = *ran.rig;
  FakeClient* const client = ran.client.get();
  ASSERT_EQ(rig.worker(0).opens().size(), 1u);
  EXPECT_TRUE(rig.worker(0).opens()[0].rows_there());
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
  EXPECT_EQ(client->admitted(), 1);
  EXPECT_EQ(client->report().workers_size(), 1);
  EXPECT_EQ(rig.Phases(),
            (std::vector<std::string>{"sizing", "queued", "ring", "starting", "receiving",
                                      "computing", "sending", "checking", "done"}));
  EXPECT_EQ(rig.services().memory.threads.count(), 0)
      << "only the job's thread listens to the worker";
}

TEST(RowsFirst, OnlySmallJobsOfOneLocalWorker) {
  for (const JobRigOptions& options :
       {JobRigOptions{.workers = 2}, JobRigOptions{.workers = 1, .local = false}}) {
    JobRig rig(options);
    auto client = rig.Send(JobRig::Spec(), kFollows);
    ASSERT_TRUE(rig.Await(*client).ok());
    EXPECT_FALSE(rig.worker(0).opens().at(0).rows_there());
    EXPECT_EQ(client->WrongRows(), 0);
  }
  JobRig rig({.workers = 1});
  auto client = rig.Send(JobRig::Spec(kManyTokens), kFollows);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_FALSE(rig.worker(0).opens().at(0).rows_there());
}

TEST(RowsFirst, AClientWithoutItsAnnouncedInputIsAdmitted) {
  JobRig rig({.workers = 1});
  auto client = rig.Open(JobRig::Spec(), kFollows);
  ASSERT_TRUE(Eventually([&] { return client->admitted().has_value(); }));
  client->SendAll();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_FALSE(rig.worker(0).opens().at(0).rows_there());
  EXPECT_EQ(client->WrongRows(), 0);
}

TEST(RowsFirst, MemoryThatTheWorkerTurnsDownIsSentByMessages) {
  const Ran ran = RunWithin(kRowsFollowWithin, kFollows, &FakeWorker::TurnMemoryDown);
  ASSERT_FALSE(HasFailure());
  EXPECT_TRUE(ran.rig->worker(0).opens().at(0).rows_there());
  EXPECT_EQ(ran.client->WrongRows(), 0);
  EXPECT_EQ(ran.client->RepeatedRows(), 0);
}

TEST(RowsFirst, OneMessageMayBeTheWholeAnswer) {
  const Ran ran = RunWithin(kAnswersWithin, kOneAnswer, &FakeWorker::AnswerWhole);
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(ran.client->messages(), 1);
  EXPECT_EQ(ran.client->admitted(), std::nullopt);
  EXPECT_EQ(ran.client->report().workers_size(), 1);
  EXPECT_EQ(ran.client->WrongRows(), 0);
  EXPECT_EQ(ran.client->RepeatedRows(), 0);
}

TEST(RowsFirst, AClientThatWaitsForAnAnswerIsAdmittedFirst) {
  JobRig rig({.workers = 1});
  rig.worker(0).AnswerWhole();
  Hold hold;
  rig.worker(0).At(Moment::kOpened, hold.action());
  auto client = rig.Send(JobRig::Spec(), kOneAnswer);
  ASSERT_TRUE(hold.AwaitHeld());
  EXPECT_TRUE(Eventually([&] { return client->admitted().has_value(); }));
  hold.Release();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->WrongRows(), 0);
}

TEST(RowsFirst, AnAnswerOfSeveralMessagesBeginsWithAdmitted) {
  JobRig rig({.workers = 1});
  rig.worker(0).AnswerWhole();
  auto client = rig.Send(JobRig::Spec(1024), kOneAnswer);  // outputs of 128 KiB
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->admitted(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
}

// A client counts such a failure as an attempt.
TEST(RowsFirst, AJobThatFailsAtItsWorkerWasAdmitted) {
  server::CoordinatorSettings settings;
  settings.max_retries = 0;
  JobRig rig({.workers = 1, .settings = settings});
  rig.worker(0).At(Moment::kOpened, Break());
  auto client = rig.Send(JobRig::Spec(), kOneAnswer);
  EXPECT_EQ(wire::ReasonOf(rig.Await(*client)), "WORKER_LOST");
  EXPECT_EQ(client->admitted(), 1);
}

// The moment of the failure, and whether the client takes a single answer.
class RowsFirstLoses : public ::testing::TestWithParam<std::tuple<Moment, bool>> {};

TEST_P(RowsFirstLoses, TheJobIsTriedAgainWithTheRowsThatAreHere) {
  const auto [moment, one_answer] = GetParam();
  JobRig rig({.workers = 1});
  if (moment == Moment::kRowsDone || moment == Moment::kFigures) {
    rig.worker(0).AnswerWhole();
  }
  rig.worker(0).At(moment, Break());
  auto client = rig.Send(JobRig::Spec(), one_answer ? kOneAnswer : kFollows);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->resends(), 0);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
}

INSTANTIATE_TEST_SUITE_P(Moments, RowsFirstLoses,
                         ::testing::Combine(::testing::Values(Moment::kOpened, Moment::kReady,
                                                              Moment::kRowsDone, Moment::kHalfOut,
                                                              Moment::kAllOut, Moment::kComputed,
                                                              Moment::kFigures),
                                            ::testing::Bool()));

TEST(RowsFirst, ACancelEndsTheJobAndFreesItsWorker) {
  JobRig rig({.workers = 1});
  Hold hold;
  rig.worker(0).At(Moment::kOpened, hold.action());
  auto client = rig.Send(JobRig::Spec(), kFollows);
  ASSERT_TRUE(hold.AwaitHeld());
  client->Cancel();
  EXPECT_TRUE(absl::IsCancelled(rig.Await(*client)));
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); }));
  auto next = rig.Send(JobRig::Spec(), {.job_id = "next", .input_follows = true});
  EXPECT_TRUE(rig.Await(*next).ok());
}

TEST(RowsFirst, AWorkerThatStallsIsLost) {
  server::CoordinatorSettings settings;
  settings.max_retries = 0;
  settings.stall_timeout = std::chrono::seconds(60);
  JobRig rig({.workers = 1, .settings = settings});
  Hold hold;
  rig.worker(0).At(Moment::kReady, hold.action());
  auto client = rig.Send(JobRig::Spec(), kFollows);
  ASSERT_TRUE(rig.AwaitPhase(JobPhase::kComputing));
  ASSERT_TRUE(hold.AwaitHeld());
  // The stall timeout begins with the wait for results.
  ASSERT_TRUE(Eventually([&] {
    rig.time().Advance(std::chrono::seconds(20));
    return client->ended();
  }));
  EXPECT_EQ(wire::ReasonOf(rig.Await(*client)), "WORKER_LOST");
}

}  // namespace
}  // namespace hilbert_ring::testing
