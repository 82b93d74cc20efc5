#include <chrono>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using server::JobPhase;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kSeen{200};  // between two reports of progress to the job list
constexpr milliseconds kLook{250};  // how often a run looks for workers that do not move

bool AwaitRows(JobRig& rig) {
  return Eventually([&] {
    const auto jobs = rig.jobs().List("caller");
    return !jobs.empty() && jobs[0].fraction() > 0;
  });
}

FakeWorker::Action Progress(double fraction, int64_t waiting_step) {
  return Write([=](v1::RunResponse& response) {
    response.mutable_progress()->set_fraction(fraction);
    response.mutable_progress()->set_waiting_step(waiting_step);
  });
}

FakeWorker::Action Both(FakeWorker::Action first, FakeWorker::Action second) {
  return [first = std::move(first), second = std::move(second)](const FakeWorker::Here& here) {
    const auto end = first(here);
    return end ? end : second(here);
  };
}

class Stall : public ::testing::Test {
 protected:
  void Begin(int64_t step_of_0, int64_t step_of_1) {
    const int64_t steps[] = {step_of_0, step_of_1};
    Hold steps_hold[2];
    for (const int i : {0, 1}) {
      rig_.worker(i).At(
          Moment::kRowsDone,
          Both(steps_hold[i].action(), Both(Progress(0.25, steps[i]), holds_[i].action())));
    }
    client_ = rig_.Open();
    client_->SendAll();
    ASSERT_TRUE(rig_.AwaitPhase(JobPhase::kComputing));
    for (const int i : {0, 1}) {
      steps_hold[i].Release();
      ASSERT_TRUE(Eventually(
          [&] { return rig_.jobs().List("caller").front().fraction() == (i + 1) * 0.125; }));
      rig_.time().Advance(kSeen);
    }
    ASSERT_TRUE(rig_.time().AwaitWait(kLook));
  }
  void ExpectEnd(int culprit, const std::string& how, bool excluded) {
    ASSERT_TRUE(rig_.Await(*client_).ok());
    EXPECT_EQ(client_->report().retries(), 1);
    EXPECT_THAT(rig_.lines(),
                Contains(AllOf(HasSubstr("is tried again"),
                               HasSubstr(rig_.worker(culprit).address() + " was lost"),
                               HasSubstr("made progress for 20000 ms"), HasSubstr(how))));
    for (const int i : {0, 1}) {
      const std::string backs_off = rig_.worker(i).address() + " gets no jobs for";
      const auto logged = Contains(HasSubstr(backs_off));
      if (excluded && i == culprit) {
        EXPECT_THAT(rig_.lines(), logged);
      } else {
        EXPECT_THAT(rig_.lines(), Not(logged));
      }
    }
    EXPECT_EQ(client_->report().workers_size(), excluded ? 1 : 2);
    EXPECT_EQ(client_->WrongRows(), 0);
  }

  JobRig rig_{{.settings = {.stall_timeout = seconds(20)}}};
  Hold holds_[2];
  std::unique_ptr<FakeClient> client_;
};

TEST_F(Stall, TheWorkerThatWaitsForNoPeerIsTheCulprit) {
  Begin(0, 1);
  rig_.time().Advance(seconds(20));
  ExpectEnd(0, "waits for no peer", true);
}

TEST_F(Stall, IfAllWaitTheWorkerInTheEarliestStepIsLost) {
  Begin(3, 2);
  rig_.time().Advance(seconds(20));
  ExpectEnd(1, "waits in exchange step 2", false);
}

TEST_F(Stall, AWorkerThatMovesExcusesTheOthers) {
  Hold later;
  rig_.worker(1).At(Moment::kHalfOut, later.action());
  Begin(0, 0);
  rig_.time().Advance(seconds(15));
  holds_[1].Release();  // it has final rows
  ASSERT_TRUE(later.AwaitHeld());
  ASSERT_TRUE(Eventually([&] { return client_->rows() == 16; }));
  rig_.time().Advance(seconds(15));
  ASSERT_TRUE(rig_.time().AwaitWait(kLook));
  EXPECT_FALSE(holds_[0].cancelled());
  later.Release();
  holds_[0].Release();
  ASSERT_TRUE(client_->Await().ok());
  EXPECT_EQ(client_->report().retries(), 0);
}

TEST_F(Stall, AWorkerThatHasDoneItsPartIsNoCulprit) {
  Hold later;
  rig_.worker(1).At(Moment::kComputed, later.action());
  Begin(2, 0);
  holds_[1].Release();
  ASSERT_TRUE(later.AwaitHeld());
  ASSERT_TRUE(Eventually([&] { return client_->rows() == 32; }));
  rig_.time().Advance(seconds(20));
  ExpectEnd(0, "waits in exchange step 2", false);
}

TEST(JobClock, AWorkerThatIsNotReadyInTimeIsExcluded) {
  for (const int64_t tokens : {int64_t{64}, kManyTokens}) {
    JobRig rig;
    Hold hold;
    // The run asks both ranks in sequence: which one has answered decides nothing.
    rig.worker(0).At(Moment::kOpened, hold.action());
    auto client = rig.Send(JobRig::Spec(tokens));
    ASSERT_TRUE(hold.AwaitHeld());
    ASSERT_TRUE(rig.time().AwaitWait(seconds(60)));
    rig.time().Advance(seconds(60) - milliseconds(1));
    ASSERT_TRUE(rig.time().AwaitWait(milliseconds(1)));
    EXPECT_FALSE(hold.cancelled());
    rig.time().Advance(milliseconds(1));
    ASSERT_TRUE(rig.Await(*client).ok());
    EXPECT_EQ(client->report().workers_size(), 1);
    EXPECT_THAT(rig.lines(), Contains(HasSubstr(rig.worker(0).address() + " gets no jobs for")));
    EXPECT_THAT(rig.lines(), Contains(HasSubstr("was not ready for the job in time")));
  }
}

TEST(JobClock, AJobComputesUpToTheJobTimeout) {
  JobRig rig({.settings = {.job_timeout = minutes(10)}});
  Hold hold;
  rig.worker(1).At(Moment::kRowsDone, hold.action());
  auto client = rig.Send();
  ASSERT_TRUE(hold.AwaitHeld());
  ASSERT_TRUE(rig.AwaitPhase(JobPhase::kComputing));
  ASSERT_TRUE(Eventually([&] { return client->rows() == 32; })) << "the other has done its part";
  ASSERT_TRUE(rig.time().AwaitWait(kLook));
  EXPECT_EQ(rig.worker(1).opens()[0].compute_timeout_ms(), 600'000);
  // The worker has its own limit and half a minute to report it.
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

// Workers have the limit too, and use clocks of their own.
TEST(JobClock, AWorkerMayReportTheTimeoutOnlyWhenItIsDue) {
  for (const bool over : {true, false}) {
    JobRig rig({.settings = {.job_timeout = minutes(10)}});
    Hold hold;
    rig.worker(1).At(Moment::kRowsDone, hold.action());
    auto client = rig.Send();
    ASSERT_TRUE(hold.AwaitHeld());
    ASSERT_TRUE(rig.AwaitPhase(JobPhase::kComputing));
    ASSERT_TRUE(rig.time().AwaitWait(kLook));
    rig.time().Advance(over ? minutes(5) : minutes(5) - seconds(30));
    hold.Release(wire::ToGrpc(
        wire::ErrorOf(wire::reason::kJobTimeout, "the job's deadline passed while computing")));
    const absl::Status status = rig.Await(*client);
    EXPECT_EQ(wire::ReasonOf(status), over ? "JOB_TIMEOUT" : "OK") << status;
    EXPECT_EQ(status.ok(), !over);
    EXPECT_EQ(rig.worker(1).runs(), 1);
    EXPECT_EQ(rig.worker(0).runs(), over ? 1 : 2);
    EXPECT_EQ(rig.failures(1), over ? 0 : 1);
  }
}

// The worker's heartbeats continue, and the job's thread waits in a write.
TEST(JobClock, AWorkerThatTakesNoRowsIsLost) {
  JobRig rig({.local = false, .settings = {.stall_timeout = seconds(20)}});
  Hold hold;
  rig.worker(0).At(Moment::kReady, hold.action());
  auto client = rig.Send(JobRig::Spec(kManyTokens));
  ASSERT_TRUE(hold.AwaitHeld());
  int looked = 0;
  ASSERT_TRUE(Eventually([&] {
    rig.time().Advance(seconds(1));
    rig.Look();
    ++looked;
    return hold.cancelled();
  }));
  EXPECT_GE(looked, 20);
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().workers_size(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_THAT(rig.lines(), Contains(AllOf(HasSubstr(rig.worker(0).address() + " was lost"),
                                          HasSubstr("took no rows for 20000 ms"))));
}

TEST(JobClock, AWorkerWithoutRowsHearsEveryTenSecondsThatOthersGetThem) {
  JobRig rig({.local = false});
  Hold fed[2];
  for (const int i : {0, 1}) rig.worker(i).At(Moment::kFed, fed[i].action());
  auto client = rig.Open(JobRig::Spec(kManyTokens));
  client->Send(v1::TENSOR_Q, 0, 8);
  ASSERT_TRUE(Eventually([&] { return fed[0].held() || fed[1].held(); }));
  const int first = fed[0].held() ? 0 : 1;
  fed[first].Release();
  rig.time().Advance(seconds(10) - milliseconds(1));
  client->Send(v1::TENSOR_Q, 8, 8);
  EXPECT_FALSE(fed[1 - first].held());
  rig.time().Advance(milliseconds(1));
  client->Send(v1::TENSOR_Q, 16, 8);
  EXPECT_TRUE(fed[1 - first].AwaitHeld());
}

TEST(JobClock, AWorkerWhoseOutputsWaitForTheClientIsNoStall) {
  JobRig rig({.workers = 1,
              .local = false,
              .settings = {.job_timeout = seconds(60), .stall_timeout = seconds(20)}});
  auto client = rig.Send(JobRig::Spec(), {.reads = 1});
  ASSERT_TRUE(rig.AwaitPhase(JobPhase::kComputing));
  ASSERT_TRUE(rig.time().AwaitWait(kLook));
  for (int look = 0; look < 100; ++look) {
    rig.time().Advance(seconds(1));
    ASSERT_TRUE(rig.time().AwaitWait(kLook));
  }
  client->Read();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 0);
  EXPECT_EQ(client->WrongRows(), 0);
}

// The stream's reader waits for the client with an output.
TEST(JobClock, AFailureBehindOutputsArrivesWhileTheClientDoesNotRead) {
  JobRig rig({.workers = 1, .local = false});
  Hold hold;
  rig.worker(0).At(Moment::kAllOut, hold.action());
  auto client = rig.Send(JobRig::Spec(), {.reads = 1});
  ASSERT_TRUE(hold.AwaitHeld());
  const uint64_t run = rig.worker(0).opens().at(0).run();
  const absl::Status why = absl::InternalError("the device failed");
  rig.TellFailure(0, run + 1, why, "CHUNK_MISSHAPEN");
  EXPECT_FALSE(hold.cancelled()) << "another run's";
  rig.TellFailure(0, run, why, "CHUNK_MISSHAPEN");
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); }));
  client->Read();
  EXPECT_EQ(wire::ReasonOf(rig.Await(*client)), "CHUNK_MISSHAPEN");
}

TEST(JobClock, AClientThatSendsNothingIsIdle) {
  JobRig rig({.settings = {.idle_timeout = minutes(4)}});
  auto client = rig.Open();
  client->Send(v1::TENSOR_Q, 0, 32);
  ASSERT_TRUE(AwaitRows(rig));
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
  client->Send(v1::TENSOR_Q, 0, 8);
  ASSERT_TRUE(AwaitRows(rig));
  // The client sends a kilobyte every two minutes, each about 119 s too late.
  for (const seconds left : {seconds(240), seconds(121), seconds(2)}) {
    ASSERT_TRUE(rig.time().AwaitWait(left - seconds(1), left + seconds(1)));
    if (left < minutes(1)) break;
    rig.time().Advance(minutes(2));
    const double before = rig.jobs().List("caller").front().fraction();
    client->Send(v1::TENSOR_Q, left == minutes(4) ? 8 : 16, 8);
    ASSERT_TRUE(Eventually([&] { return rig.jobs().List("caller").front().fraction() > before; }));
  }
  rig.time().Advance(seconds(4));
  const absl::Status status = client->Await();
  EXPECT_EQ(wire::ReasonOf(status), "CLIENT_IDLE") << status;
}

TEST(JobClock, AClientThatReadsNothingIsIdle) {
  JobRig rig({.workers = 1, .local = false, .settings = {.idle_timeout = minutes(4)}});
  auto client = rig.Send(JobRig::Spec(), {.reads = 1});
  // All rows are there; half of the outputs are on their way, and the others wait.
  ASSERT_TRUE(rig.AwaitPhase(JobPhase::kComputing));
  ASSERT_TRUE(rig.time().AwaitWait(minutes(4)));
  rig.time().Advance(minutes(4));
  EXPECT_TRUE(rig.Until([&] { return rig.jobs().List("caller").empty(); }));
  client->Read();
  const absl::Status status = client->Await();
  EXPECT_EQ(wire::ReasonOf(status), "CLIENT_IDLE") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not read anything for 240"));
  EXPECT_EQ(rig.worker(0).runs(), 1);
}

TEST(JobClock, AJobInTheQueueWaitsForTheQueueTimeout) {
  JobRig rig({.workers = 1, .settings = {.queue_timeout = minutes(2)}});
  Hold hold;
  rig.worker(0).At(Moment::kRowsDone, hold.action());
  auto first = rig.Send(JobRig::Spec(), {.job_id = "first"});
  ASSERT_TRUE(hold.AwaitHeld());
  auto second = rig.Open(PlainSpec({.tokens = 65536, .heads = 1, .dim = 8}), {.job_id = "second"});
  ASSERT_TRUE(rig.AwaitPhase(JobPhase::kQueued));
  ASSERT_TRUE(rig.time().AwaitWait(milliseconds(100)));  // then the client gets its place
  rig.time().Advance(minutes(2));
  const absl::Status status = rig.Await(*second);
  EXPECT_EQ(wire::ReasonOf(status), "QUEUE_TIMEOUT") << status;
  hold.Release();
  EXPECT_TRUE(rig.Await(*first).ok()) << "whose compute has no such limit";
}

}  // namespace
}  // namespace hilbert_ring::testing
