#include <chrono>

#include "engine/base/peer_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/job_execution.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using server::JobPhase;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum class Way { kBreaks, kSays, kLeaves };

struct Loss {
  Way way;
  Moment moment;
  bool local;
  int64_t tokens;
};

std::string NameOf(const Loss& loss) {
  constexpr const char* kWays[] = {"Breaks", "Says", "Leaves"};
  constexpr const char* kMoments[] = {"Opened",  "Ready",  "Fed",      "RowsDone",
                                      "HalfOut", "AllOut", "Computed", "Figures"};
  return std::string(kWays[static_cast<int>(loss.way)]) + kMoments[static_cast<int>(loss.moment)] +
         (loss.local ? "Local" : "Remote") + std::to_string(loss.tokens);
}

std::vector<Loss> Losses() {
  std::vector<Loss> losses;
  for (const Way way : {Way::kBreaks, Way::kSays, Way::kLeaves}) {
    for (int moment = 0; moment <= static_cast<int>(Moment::kFigures); ++moment) {
      for (const bool local : {true, false}) {
        for (const int64_t tokens : {int64_t{64}, kManyTokens}) {
          // A worker of this host receives word of rows only if the rows are many.
          if (static_cast<Moment>(moment) == Moment::kFed && local) continue;
          losses.push_back({way, static_cast<Moment>(moment), local, tokens});
        }
      }
    }
  }
  return losses;
}

class LosesAWorker : public ::testing::TestWithParam<Loss> {};

TEST_P(LosesAWorker, TheJobEndsOnTheOthersWithEachRowOnce) {
  const Loss loss = GetParam();
  JobRig rig({.local = loss.local});
  Hold hold;
  FakeWorker::Action action = hold.action();
  if (loss.way == Way::kBreaks) action = Break();
  if (loss.way == Way::kSays) action = Say(absl::UnavailableError("a peer is gone"), "");
  rig.worker(0).At(loss.moment, action);
  auto client = rig.Send(JobRig::Spec(loss.tokens));
  if (loss.way == Way::kLeaves) {
    ASSERT_TRUE(hold.AwaitHeld());
    rig.Leave(0);
  }
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
  EXPECT_EQ(client->resends(), 0) << "rows of all shards are here";
  EXPECT_THAT(rig.errors(), IsEmpty());
  EXPECT_THAT(rig.Phases(), Contains("queued").Times(2));
  // A worker that reports a peer's death keeps its place.
  EXPECT_EQ(client->report().workers_size(), loss.way == Way::kSays ? 2 : 1);
  if (loss.way == Way::kBreaks) {
    EXPECT_THAT(rig.Describe(0).reason(), AllOf(HasSubstr("failed 1 jobs"), HasSubstr("was lost")));
  }
  EXPECT_EQ(rig.Describe(1).reason(), "");
}

INSTANTIATE_TEST_SUITE_P(All, LosesAWorker, ::testing::ValuesIn(Losses()),
                         [](const auto& info) { return NameOf(info.param); });

TEST(JobLoss, TheNextExecutionOmitsOutputsThatTheClientHas) {
  JobRig rig;
  Hold hold;
  rig.worker(0).At(Moment::kHalfOut, hold.action());
  auto client = rig.Send();
  ASSERT_TRUE(hold.AwaitHeld());
  ASSERT_TRUE(Eventually([&] { return client->rows() == 48; }));
  rig.Leave(0);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
  const v1::RunOpen open = rig.worker(1).opens().back();
  int64_t delivered = 0;
  for (const v1::DeliveredRows& rows : open.delivered()) {
    if (rows.tensor() != v1::TENSOR_OUT) continue;
    for (const v1::SlotRange& range : rows.slots()) delivered += range.end() - range.begin();
  }
  EXPECT_EQ(delivered, 48);
}

TEST(JobLoss, AWorkerThatLeavesInOrderTakesNoJobAlong) {
  JobRig rig;
  Hold hold;
  rig.worker(0).At(Moment::kFigures, hold.action());
  auto client = rig.Send();
  ASSERT_TRUE(hold.AwaitHeld());
  rig.Drain(0);
  hold.Release();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 0);
}

TEST(JobLoss, AnotherWorkerInThePlaceOfTheLostOneHasItsRows) {
  JobRig rig;
  Hold hold;
  rig.worker(0).At(Moment::kRowsDone, hold.action());
  auto client = rig.Send();
  ASSERT_TRUE(hold.AwaitHeld());
  rig.Leave(0);
  rig.Join(0);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().workers_size(), 2);
  EXPECT_EQ(client->resends(), 0);
  ASSERT_EQ(rig.worker(1).runs(), 2);
  EXPECT_EQ(rig.worker(1).opens()[0].rank(), rig.worker(1).opens()[1].rank());
}

TEST(JobLoss, RowsThatNoProcessHoldsAreRequestedAgain) {
  for (const Moment moment : {Moment::kReady, Moment::kFed, Moment::kRowsDone, Moment::kHalfOut}) {
    SCOPED_TRACE(static_cast<int>(moment));
    JobRig rig({.local = false, .settings = {.copy_memory_bytes = 0}});
    rig.worker(0).At(moment, Break());
    auto client = rig.Send(JobRig::Spec(kManyTokens));
    ASSERT_TRUE(rig.Await(*client).ok());
    EXPECT_EQ(client->WrongRows(), 0);
    EXPECT_EQ(client->RepeatedRows(), 0);
    if (moment >= Moment::kRowsDone) {
      EXPECT_GE(client->resends(), 3) << "Q, K and V";
    }
  }
}

TEST(JobLoss, AClientThatCannotSendRowsAgainNeedsCopies) {
  for (const bool copies : {false, true}) {
    JobRigOptions options{.local = false};
    if (!copies) options.settings.copy_memory_bytes = 0;
    JobRig rig(options);
    rig.worker(0).At(Moment::kRowsDone, Break());
    auto client = rig.Open(JobRig::Spec(), {.can_resend = false});
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
      client->Send(tensor, 0, 64);
    }
    client->CloseWrites();
    const absl::Status status = rig.Await(*client);
    EXPECT_EQ(wire::ReasonOf(status), copies ? "OK" : "ROWS_LOST") << status;
    EXPECT_EQ(absl::IsAborted(status), !copies);
    EXPECT_EQ(client->WrongRows() == 0, copies);
  }
}

TEST(JobLoss, TriesAreBounded) {
  for (const int most : {0, 2}) {
    JobRig rig({.settings = {.max_retries = most}});
    // A worker that reports a loss twice in a row is excluded: the two take turns.
    for (const int worker : {0, 1}) {
      rig.worker(worker).AtEach(
          Moment::kRowsDone,
          [&rig, worker, failure_action = Say(absl::UnavailableError("a peer is gone"), "")](
              const FakeWorker::Here& here) -> std::optional<grpc::Status> {
            if (rig.worker(worker).runs() % 2 != worker) return std::nullopt;
            return failure_action(here);
          });
    }
    auto client = rig.Send();
    const absl::Status status = rig.Await(*client);
    EXPECT_EQ(wire::ReasonOf(status), "WORKER_LOST") << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("; tried " + std::to_string(most + 1) + " times"));
    EXPECT_EQ(rig.worker(0).runs(), most + 1);
    EXPECT_EQ(rig.Phases().back(), "failed");
  }
}

TEST(JobLoss, CorruptBlocksAreTriedAgain) {
  JobRig rig({.settings = {.max_retries = 1}});
  rig.worker(0).At(Moment::kRowsDone, Say(absl::DataLossError("a block is corrupt"), "BLOCK"));
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 2);

  rig.worker(0).AtEach(Moment::kRowsDone, Say(absl::DataLossError("a block is corrupt"), "BLOCK"));
  auto lost = rig.Send();
  const absl::Status status = rig.Await(*lost);
  EXPECT_EQ(wire::ReasonOf(status), "WORKER_DATA_LOSS") << status;
  EXPECT_TRUE(absl::IsDataLoss(status));
}

struct SaidError {
  absl::Status error;
  const char* reason;
  bool of_disk;  // or of the worker's copy of a model
};

// The worker or its job may be to blame for each of them.
std::vector<SaidError> SaidErrors() {
  return {{absl::InternalError("the device failed"), "INTERNAL", false},
          {absl::InvalidArgumentError("rows are wrong"), "CHUNK_MISSHAPEN", false},
          {absl::InvalidArgumentError("no RunRequest"), "INVALID_OPEN", false},
          {absl::UnknownError("something"), "UNKNOWN", false},
          {absl::DeadlineExceededError("the job's deadline passed"), "JOB_TIMEOUT", false},
          {absl::ResourceExhaustedError("no memory"), "WORKER_MEMORY", false},
          {absl::NotFoundError("no such model"), "MODEL_NOT_FOUND", true},
          {absl::FailedPreconditionError("its weights are not those"), "MODEL_UNUSABLE", true},
          {absl::UnavailableError("it changes"), "MODEL_UNUSABLE", true},
          {absl::DataLossError("its weights are torn"), "MODEL_UNUSABLE", true},
          {absl::InternalError("cannot be read"), "FILE_IO", true},
          {absl::FailedPreconditionError("it was written to"), "FILE_CHANGED", true},
          {absl::ResourceExhaustedError("the disk is full"), "FILE_NO_SPACE", true},
          {absl::UnavailableError("it does not answer"), "DATA_ROOT_GONE", true},
          {absl::FailedPreconditionError("it has none"), "NO_DATA_ROOT", true}};
}

TEST(JobLoss, AWorkerWhoseErrorNoOtherHasIsExcludedAndBacksOff) {
  for (const auto& [error, reason, of_disk] : SaidErrors()) {
    SCOPED_TRACE(reason);
    JobRig rig;
    rig.worker(0).AtEach(Moment::kRowsDone, Say(error, reason));
    auto client = rig.Send();
    const absl::Status status = rig.Await(*client);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(client->report().retries(), 1);
    EXPECT_EQ(client->report().workers_size(), 1);
    EXPECT_EQ(client->WrongRows(), 0);
    EXPECT_EQ(client->RepeatedRows(), 0);
    EXPECT_EQ(rig.worker(0).runs(), 1);
    EXPECT_EQ(rig.failures(0), 1);
    EXPECT_EQ(rig.failures(1), 0);
    EXPECT_TRUE(rig.backs_off(0));
    EXPECT_THAT(rig.Describe(0).reason(),
                AllOf(HasSubstr("failed 1 jobs"), HasSubstr(error.message())));
    EXPECT_THAT(rig.lines(), Contains(AllOf(HasSubstr("worker 127.0.0.1:1 gets no jobs for"),
                                            HasSubstr(error.message()))));
  }
}

TEST(JobLoss, AnErrorThatAnotherWorkerHasTooIsTheJobs) {
  for (const auto& [error, reason, of_disk] : SaidErrors()) {
    SCOPED_TRACE(reason);
    JobRigOptions options{.workers = 3};
    if (of_disk) options.settings.job_workers = 1;
    JobRig rig(options);
    for (const int worker : {0, 1, 2}) {
      rig.worker(worker).AtEach(Moment::kRowsDone, Say(error, reason));
    }
    auto client = rig.Send();
    const absl::Status status = rig.Await(*client);
    EXPECT_EQ(status.code(), error.code()) << status;
    EXPECT_EQ(wire::ReasonOf(status), reason);
    EXPECT_THAT(std::string(status.message()), HasSubstr(error.message()));
    int failures = 0, runs = 0;
    for (const int worker : {0, 1, 2}) {
      EXPECT_LE(rig.worker(worker).runs(), of_disk ? 1 : 2);
      EXPECT_EQ(rig.Describe(worker).state(), v1::ClusterWorker::STATE_UP);
      failures += rig.failures(worker);
      runs += rig.worker(worker).runs();
    }
    if (of_disk) {
      EXPECT_EQ(runs, 2);
    }
    // A worker with less memory or threads than it registered is counted.
    EXPECT_EQ(failures, !of_disk && absl::IsResourceExhausted(error) ? 2 : 0);
  }
}

TEST(JobLoss, AnErrorOfTheOnlyWorkerEndsTheJobAtOnce) {
  for (const auto& [error, reason, of_disk] : SaidErrors()) {
    SCOPED_TRACE(reason);
    JobRig rig({.workers = 1});
    rig.worker(0).AtEach(Moment::kRowsDone, Say(error, reason));
    auto client = rig.Send();
    const absl::Status status = rig.Await(*client);
    EXPECT_EQ(status.code(), error.code()) << status;
    EXPECT_EQ(wire::ReasonOf(status), reason);
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker 127.0.0.1:1: "));
    EXPECT_EQ(rig.worker(0).runs(), 1);
    EXPECT_EQ(rig.failures(0), !of_disk && absl::IsResourceExhausted(error) ? 1 : 0);
    EXPECT_EQ(rig.Describe(0).state(), v1::ClusterWorker::STATE_UP);
  }
}

TEST(JobLoss, AFailureArrivesBeforeAllRowsHaveCome) {
  JobRig rig({.workers = 1});
  rig.worker(0).At(Moment::kReady, Write([](v1::RunResponse& response) {
                     v1::RunFailed& failed = *response.mutable_failed();
                     failed.set_code(static_cast<int>(absl::StatusCode::kInternal));
                     failed.set_reason("CHUNK_MISSHAPEN");
                   }));
  auto client = rig.Open(JobRig::Spec(kManyTokens));
  EXPECT_EQ(wire::ReasonOf(rig.Await(*client)), "CHUNK_MISSHAPEN");
}

TEST(JobLoss, AWorkerAloneThatReportsALossIsExcluded) {
  JobRig rig({.workers = 2, .settings = {.job_workers = 1}});
  rig.worker(0).AtEach(Moment::kRowsDone, Say(absl::AbortedError("lost"), "WORKER_LOST"));
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(rig.worker(0).runs(), 1);
  EXPECT_EQ(rig.worker(1).runs(), 1);
  EXPECT_EQ(rig.failures(0), 1);
}

FakeWorker::Action FindsCorrupt(int peer, int workers) {
  const absl::Status error = WithPeer(absl::DataLossError("its CRC32C is another"), peer);
  return [error, workers](const FakeWorker::Here& here) -> std::optional<grpc::Status> {
    if (here.open.workers() < workers) return std::nullopt;
    return wire::ToGrpc(error);
  };
}

TEST(JobLoss, TheSenderOfCorruptBlocksIsExcludedNotTheReceiver) {
  JobRig rig({.workers = 4});
  rig.worker(2).AtEach(Moment::kRowsDone, FindsCorrupt(1, 4));
  auto client = rig.Send();
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 3);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(rig.worker(1).runs(), 1);
  for (const int worker : {0, 1, 2, 3}) EXPECT_EQ(rig.failures(worker), worker == 1 ? 1 : 0);
}

// A worker that has registered anew has another call token.
TEST(JobLoss, AWorkerOfAnotherIncarnationIsALostOne) {
  JobRig rig;
  rig.worker(0).At(Moment::kOpened, Say(absl::UnauthenticatedError("not my token"), "JOIN_TOKEN"));
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
}

// The coordinator waits for the news of the death before it judges a report of it.
TEST(JobLoss, TheDeadWorkerIsNamedNotTheReporter) {
  JobRig rig;
  Hold dead, mourner;
  rig.worker(0).At(Moment::kRowsDone, dead.action());
  rig.worker(1).At(Moment::kRowsDone, mourner.action());
  auto client = rig.Send();
  ASSERT_TRUE(dead.AwaitHeld() && mourner.AwaitHeld());
  mourner.Release(wire::ToGrpc(absl::UnavailableError("a peer is gone")));
  ASSERT_TRUE(rig.time().AwaitWait(std::chrono::milliseconds(300)));
  rig.Leave(0);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_THAT(rig.lines(),
              Contains(AllOf(HasSubstr("is tried again"), HasSubstr("127.0.0.1:1 was lost"))));
}

// Outputs of the first execution lie in memory that the next one begins with.
TEST(JobLoss, HeldRowsThatASlowClientStillReadsStayAsTheyWere) {
  JobRig rig;
  Hold hold;
  rig.worker(0).At(Moment::kAllOut, hold.action());
  auto client = rig.Send(JobRig::Spec(kManyTokens), {.reads = 1});
  // Time passes until outputs that the client does not take at once have a thread of their own.
  ASSERT_TRUE(rig.Until([&] { return hold.held(); }));
  rig.Leave(0);
  ASSERT_TRUE(rig.Until([&] { return rig.worker(1).runs() == 2; }));
  client->Read();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
}

TEST(JobLoss, ABusyWorkerStaysExcludedWhenAFailedOneIsUsedAgain) {
  JobRig rig;
  rig.worker(0).At(Moment::kOpened, Say(absl::UnavailableError("it has a job"),
                                        std::string(wire::reason::kWorkerBusy.name)));
  rig.worker(1).At(Moment::kRowsDone, Break());
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 2);
  EXPECT_EQ(rig.worker(0).runs(), 1);
}

}  // namespace
}  // namespace hilbert_ring::testing
