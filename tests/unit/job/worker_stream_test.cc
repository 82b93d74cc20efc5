#include "server/job/worker_stream.h"

#include "gtest/gtest.h"
#include "server/job/client_rows.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Silent : public server::WorkerStream::Listener {
 public:
  void Changed() override {}
  void Progressed(int, const v1::RunProgress&) override {}
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
  std::atomic<int> failures = 0;
};

class WorkerStreamTest : public ::testing::Test {
 protected:
  ~WorkerStreamTest() override {
    stream_.CancelUnlessEnded();
    stream_.Join();
  }
  void Run() {
    ASSERT_TRUE(stream_.Make().ok());
    stream_.Open(1, job_.delivered);
    ASSERT_TRUE(Eventually([this] { return stream_.replies().ready; }));
    stream_.Settle();
    ASSERT_TRUE(stream_.FinishRows().ok());
  }
  void OpenWithRows() {
    ASSERT_TRUE(stream_.Make().ok());
    stream_.OpenWithRows(1);
  }
  void Poll(absl::FunctionRef<bool()> until) {
    ASSERT_TRUE(Eventually([&] {
      stream_.Poll(std::chrono::system_clock::now() + milliseconds(10));
      return until();
    }));
  }

  JobRig rig_{{.workers = 1}};
  FakeWorker& worker_ = rig_.worker(0);
  const server::JobServices services_ = rig_.services();
  const server::Grant grant_{.members = services_.cluster.membership.Live()};
  const Plan plan_ = *MakePlan(JobRig::Spec(), 1);
  const std::unique_ptr<server::JobWork> work_ = server::MakeAttentionWork(plan_.spec);
  const v1::Open open_;
  OpeningClient client_{open_};
  server::ClientRows rows_{client_, open_};
  server::JobCourse course_;
  server::JobRecord job_{open_, *work_, rows_, services_.memory.orders, course_};
  const server::RunParts parts_{
      .services = services_, .client = client_, .job = job_, .plan = plan_, .grant = grant_};
  server::JobStop stop_;
  Silent listener_;
  server::WorkerStream stream_{parts_, 0, listener_, stop_};
};

TEST_F(WorkerStreamTest, AWorkerThatLeavesBeforeItHasEndedIsLost) {
  Hold hold;
  worker_.At(Moment::kFigures, hold.action());
  Run();
  ASSERT_TRUE(hold.AwaitHeld());
  EXPECT_FALSE(stream_.replies().ended);
  rig_.Leave(0);
  EXPECT_EQ(wire::ReasonOf(stop_.why()), "WORKER_LOST") << stop_.why();
  EXPECT_TRUE(Eventually([&] { return hold.cancelled(); }));
}

TEST_F(WorkerStreamTest, AWorkerThatLeavesWhenItHasEndedIsNot) {
  Run();
  ASSERT_TRUE(Eventually([this] { return stream_.replies().ended; }));
  EXPECT_EQ(listener_.rows, 64);
  rig_.Leave(0);
  EXPECT_TRUE(stop_.why().ok()) << stop_.why();
}

TEST_F(WorkerStreamTest, TheCallersThreadReadsAStreamThatIsOpenedWithItsRows) {
  worker_.AnswerWhole();
  OpenWithRows();
  Poll([this] { return stream_.replies().ended; });
  stream_.Settle();
  EXPECT_TRUE(stream_.replies().ready);
  EXPECT_TRUE(stream_.replies().computed);
  EXPECT_FALSE(stream_.takes_messages());
  EXPECT_EQ(stream_.report().tokens(), 64);
  EXPECT_EQ(listener_.rows, 64);
  EXPECT_EQ(services_.memory.threads.count(), 0);
  EXPECT_TRUE(stream_.FinishRows().ok()) << "there is nothing to say";
  EXPECT_TRUE(stop_.why().ok()) << stop_.why();
}

TEST_F(WorkerStreamTest, AWorkerMayAnswerInManyMessages) {
  OpenWithRows();
  Poll([this] { return stream_.replies().ended; });
  EXPECT_TRUE(stream_.replies().computed);
  EXPECT_EQ(listener_.rows, 64);
}

TEST_F(WorkerStreamTest, APollEndsAtItsTime) {
  Hold hold;
  worker_.At(Moment::kOpened, hold.action());
  OpenWithRows();
  ASSERT_TRUE(hold.AwaitHeld());
  stream_.Poll(std::chrono::system_clock::now() + milliseconds(1));
  EXPECT_FALSE(stream_.replies().ready);
  EXPECT_FALSE(stream_.replies().ended);
}

TEST_F(WorkerStreamTest, AStopEndsAPoll) {
  Hold hold;
  worker_.At(Moment::kOpened, hold.action());
  OpenWithRows();
  ASSERT_TRUE(hold.AwaitHeld());
  stop_.Request(absl::CancelledError("the client"));
  stream_.Poll(std::chrono::system_clock::time_point::max());
  EXPECT_TRUE(stream_.replies().ended);
}

TEST_F(WorkerStreamTest, AFailureArrivesBeforeAllRowsHaveCome) {
  worker_.At(Moment::kReady, Write([](v1::RunResponse& response) {
               v1::RunFailed& failed = *response.mutable_failed();
               failed.set_code(static_cast<int>(absl::StatusCode::kInternal));
               failed.set_reason("CHUNK_MISSHAPEN");
             }));
  ASSERT_TRUE(stream_.Make().ok());
  stream_.Open(1, job_.delivered);
  EXPECT_TRUE(Eventually([this] { return listener_.failures == 1; }));
}

TEST_F(WorkerStreamTest, AKeepaliveIsSentAfterTenSecondsWithoutRows) {
  Hold fed;
  worker_.At(Moment::kFed, fed.action());
  ASSERT_TRUE(stream_.Make().ok());
  stream_.Open(1, job_.delivered);
  ASSERT_TRUE(Eventually([this] { return stream_.replies().ready; }));
  rig_.time().Advance(seconds(10) - milliseconds(1));
  ASSERT_TRUE(stream_.SendKeepalive(rig_.time().Now()).ok());
  rig_.time().Advance(milliseconds(1));
  EXPECT_FALSE(fed.held());
  ASSERT_TRUE(stream_.SendKeepalive(rig_.time().Now()).ok());
  EXPECT_TRUE(fed.AwaitHeld());
}

}  // namespace
}  // namespace hilbert_ring::testing
