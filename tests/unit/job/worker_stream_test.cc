// One worker's stream by itself.
#include "server/job/worker_stream.h"

#include "gtest/gtest.h"
#include "tests/support/manual_time.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/job/fake_worker.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Takes all outputs at once.
class Silent : public server::WorkerStream::Listener {
 public:
  void Changed() override {}
  void Progressed(int, const v1::RunProgress&) override {}
  void Moved(int) override {}
  void Forwarding(int, bool) override {}
  absl::StatusOr<bool> Output(int, const v1::OutputChunk& chunk, std::string_view,
                              const std::shared_ptr<const void>&, int64_t,
                              server::Clock::duration) override {
    rows += chunk.rows();
    return true;
  }
  void Misbehaved(int, const absl::Status&) override {}
  void Failed(int, const grpc::Status& status) override {
    if (wire::ReasonOf(wire::FromGrpc(status)) == "CHUNK_MISSHAPEN") ++failures;
  }
  std::atomic<int64_t> rows = 0;
  std::atomic<int> failures = 0;  // of that reason
};

// Rows that the test sends itself.
class NoRows : public server::JobRows {};

class WorkerStreamTest : public ::testing::Test {
 protected:
  WorkerStreamTest() {
    member_->address = worker_.address();
    member_->channel = worker_.Channel();
    stream_.emplace(options_, 0, listener_, stop_);
  }
  ~WorkerStreamTest() override {
    stream_->CancelUnlessEnded();
    stream_->Join();
  }
  void Run() {
    ASSERT_TRUE(stream_->Make(delivered_).ok());
    stream_->Open(1, delivered_);
    ASSERT_TRUE(Eventually([this] { return stream_->replies().ready; }));
    stream_->Settle();
    ASSERT_TRUE(stream_->FinishRows().ok());
  }
  void OpenWithRows() {
    ASSERT_TRUE(stream_->Make(delivered_).ok());
    stream_->OpenWithRows(1);
  }
  // Whether something came.
  void Poll(absl::FunctionRef<bool()> until) {
    ASSERT_TRUE(Eventually([&] {
      stream_->Poll(std::chrono::system_clock::now() + milliseconds(10));
      return until();
    }));
  }

  FakeWorker worker_{"127.0.0.1:1"};
  const Plan plan_ = *MakePlan(PlainSpec({.segment = 1}), 1);
  const std::unique_ptr<server::JobWork> work_ = server::MakeAttentionWork(plan_.spec, {});
  const std::shared_ptr<server::Member> member_ = std::make_shared<server::Member>();
  ManualTime time_;
  server::SharedMemoryPool shards_{milliseconds(10)};
  server::KeptThreads threads_;
  server::JobMemory copies_{0};
  server::HeldRows held_;
  server::Delivered delivered_{64};
  NoRows rows_;
  server::OpenRuns runs_;
  const server::JobRunOptions options_{.job_id = "job",
                                       .plan = &plan_,
                                       .work = work_.get(),
                                       .members = {member_},
                                       .shards = &shards_,
                                       .threads = &threads_,
                                       .copies = &copies_,
                                       .held = &held_,
                                       .delivered = &delivered_,
                                       .rows = &rows_,
                                       .runs = &runs_,
                                       .time = &time_};
  server::JobStop stop_;
  Silent listener_;
  std::optional<server::WorkerStream> stream_;
};

TEST_F(WorkerStreamTest, AWorkerThatLeavesBeforeItHasEndedIsLost) {
  Hold hold;
  worker_.At(Moment::kFigures, hold.action());
  Run();
  ASSERT_TRUE(hold.AwaitHeld());
  EXPECT_FALSE(stream_->replies().ended);
  member_->departed.request_stop();
  EXPECT_EQ(wire::ReasonOf(stop_.why()), "WORKER_LOST") << stop_.why();
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); }));
}

TEST_F(WorkerStreamTest, AWorkerThatLeavesWhenItHasEndedIsNot) {
  Run();
  ASSERT_TRUE(Eventually([this] { return stream_->replies().ended; }));
  EXPECT_EQ(listener_.rows, 64);
  member_->departed.request_stop();
  EXPECT_TRUE(stop_.why().ok()) << stop_.why();
}

TEST_F(WorkerStreamTest, WhatIsOpenedWithItsRowsIsHeardByTheCallersThread) {
  worker_.AnswerWhole();
  OpenWithRows();
  Poll([this] { return stream_->replies().ended; });
  stream_->Settle();
  EXPECT_TRUE(stream_->replies().ready);
  EXPECT_TRUE(stream_->replies().computed);
  EXPECT_FALSE(stream_->takes_messages());
  EXPECT_EQ(stream_->report().tokens(), 64);
  EXPECT_EQ(listener_.rows, 64);
  EXPECT_EQ(threads_.count(), 0);
  EXPECT_TRUE(stream_->FinishRows().ok()) << "there is nothing to say";
  EXPECT_TRUE(stop_.why().ok()) << stop_.why();
}

TEST_F(WorkerStreamTest, AWorkerMayAnswerSoInManyMessages) {
  OpenWithRows();
  Poll([this] { return stream_->replies().ended; });
  EXPECT_TRUE(stream_->replies().computed);
  EXPECT_EQ(listener_.rows, 64);
}

TEST_F(WorkerStreamTest, WhoHearsNothingIsNotHeldBeyondItsTime) {
  Hold hold;
  worker_.At(Moment::kOpened, hold.action());
  OpenWithRows();
  ASSERT_TRUE(hold.AwaitHeld());
  stream_->Poll(std::chrono::system_clock::now() + milliseconds(1));
  EXPECT_FALSE(stream_->replies().ready);
  EXPECT_FALSE(stream_->replies().ended);
}

TEST_F(WorkerStreamTest, AStopEndsTheHearing) {
  Hold hold;
  worker_.At(Moment::kOpened, hold.action());
  OpenWithRows();
  ASSERT_TRUE(hold.AwaitHeld());
  stop_.Request(absl::CancelledError("the client"));
  stream_->Poll(std::chrono::system_clock::time_point::max());
  EXPECT_TRUE(stream_->replies().ended);
}

TEST_F(WorkerStreamTest, AFailureIsHeardBeforeAllRowsHaveCome) {
  worker_.At(Moment::kReady, Write([](v1::RunResponse& response) {
               v1::RunFailed& failed = *response.mutable_failed();
               failed.set_code(static_cast<int>(absl::StatusCode::kInternal));
               failed.set_reason("CHUNK_MISSHAPEN");
             }));
  ASSERT_TRUE(stream_->Make(delivered_).ok());
  stream_->Open(1, delivered_);
  EXPECT_TRUE(Eventually([this] { return listener_.failures == 1; }));
}

TEST_F(WorkerStreamTest, ARowThatDoesNotComeIsSaidToBeElsewhereAfterTenSeconds) {
  Hold fed;
  worker_.At(Moment::kFed, fed.action());
  ASSERT_TRUE(stream_->Make(delivered_).ok());
  stream_->Open(1, delivered_);
  ASSERT_TRUE(Eventually([this] { return stream_->replies().ready; }));
  time_.Advance(seconds(10) - milliseconds(1));
  ASSERT_TRUE(stream_->SendKeepalive(time_.Now()).ok());
  time_.Advance(milliseconds(1));
  EXPECT_FALSE(fed.held());
  ASSERT_TRUE(stream_->SendKeepalive(time_.Now()).ok());
  EXPECT_TRUE(fed.AwaitHeld());
}

}  // namespace
}  // namespace hilbert_ring::testing
