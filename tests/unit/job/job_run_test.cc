// A run over a worker that says what the test wants.
#include "server/job/job_run.h"

#include <atomic>
#include <thread>

#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/rows/job_input.h"
#include "tests/plain_spec.h"
#include "wire/checksum.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Stream = grpc::ServerReaderWriter<v1::RunResponse, v1::RunRequest>;

class FakeWorker : public v1::WorkerService::Service {
 public:
  grpc::Status Run(grpc::ServerContext*, Stream* stream) override {
    v1::RunRequest open;
    if (!stream->Read(&open)) return grpc::Status::CANCELLED;
    number = open.open().run();
    return run(*stream);
  }
  std::atomic<uint64_t> number = 0;
  std::function<grpc::Status(Stream&)> run;  // after RunOpen
};

class JobRunTest : public ::testing::Test {
 protected:
  JobRunTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&worker_);
    server_ = builder.BuildAndStart();
    auto member = std::make_shared<Member>();
    member->address = "127.0.0.1:1";
    member->stub = v1::WorkerService::NewStub(server_->InProcessChannel({}));
    members_ = {member};
  }
  ~JobRunTest() override {
    run_.reset();
    server_->Shutdown();
  }

  // share: the worker gets its shard in shared memory. The output blocks until the client reads.
  void Start(bool share) {
    run_.emplace(
        JobRunOptions{.job_id = "job",
                      .plan = &plan_,
                      .members = members_,
                      .stall_timeout = stall_timeout_,
                      .share_memory = share,
                      .shards = &shards_,
                      .copies = &copies_,
                      .held = &held_,
                      .delivered = &delivered_,
                      .runs = &runs_,
                      .output = [this](int, const v1::OutputChunk&, std::string_view,
                                       const std::shared_ptr<const void>&,
                                       Clock::duration patience) -> absl::StatusOr<bool> {
                        ++outputs_;
                        std::unique_lock lock(mutex_);
                        const Deadline limit =
                            Clock::now() + std::min<Clock::duration>(patience, kLong);
                        if (reads_from_) {
                          changed_.wait_until(lock, stop_.token(), std::min(limit, *reads_from_),
                                              [] { return false; });
                        } else {
                          changed_.wait_until(lock, stop_.token(), limit, [] { return false; });
                        }
                        if (!stop_.why().ok()) return stop_.why();
                        return reads_from_ && Clock::now() >= *reads_from_;
                      },
                      .progress = [](double) {}},
        stop_);
    run_->Open();
  }

  // Until the attempt's stop; whether it came.
  bool AwaitStop() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop_.token(), kLong, [] { return false; });
    return !stop_.why().ok();
  }

  static bool Send(Stream& stream, const std::function<void(v1::RunResponse&)>& fill) {
    v1::RunResponse response;
    fill(response);
    return stream.Write(response);
  }
  static void ReadAll(Stream& stream) {
    v1::RunRequest request;
    while (stream.Read(&request) && !request.has_done()) {
    }
  }

  static constexpr milliseconds kLong{20'000};

  const Plan plan_ = *MakePlan(testing::PlainSpec({.heads = 1, .dim = 8}), 1);
  FakeWorker worker_;
  std::unique_ptr<grpc::Server> server_;
  Members members_;
  SharedMemoryPool shards_{milliseconds(10)};
  JobMemory copies_{0};
  HeldRows held_;
  Delivered delivered_{64};
  OpenRuns runs_;
  JobStop stop_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  milliseconds stall_timeout_{60'000};
  std::optional<Deadline> reads_from_;  // nothing: the client never reads
  std::atomic<int> outputs_ = 0;
  std::optional<JobRun> run_;
};

TEST_F(JobRunTest, TheClientsReadingIsNotCompute) {
  worker_.run = [](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready(); });
    ReadAll(stream);
    Send(stream, [](auto& r) {
      r.mutable_output()->set_tensor(v1::TENSOR_OUT);
      r.mutable_output()->set_rows(64);
      r.mutable_output()->set_payload(std::string(64 * 8 * 4, '\0'));
    });
    Send(stream, [](auto& r) { r.mutable_computed()->set_seconds(0.012); });
    Send(stream, [](auto& r) { r.mutable_figures(); });
    return grpc::Status::OK;
  };
  reads_from_ = Clock::now() + seconds(5);
  stall_timeout_ = seconds(2);  // which a worker that waits for the client does not count for
  Start(false);
  ASSERT_TRUE(run_->AwaitReady(Clock::now() + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  // A job timeout that is over long before the client reads.
  const absl::Status status = run_->AwaitComputed(Clock::now() + seconds(2));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(Clock::now(), *reads_from_);
  EXPECT_TRUE(run_->AwaitEnd().ok());
  EXPECT_DOUBLE_EQ(run_->compute_seconds(), 0.012);
}

TEST_F(JobRunTest, AWorkerThatDoesNotComputeInTimeIsNamed) {
  worker_.run = [this](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready(); });
    ReadAll(stream);
    AwaitStop();
    return grpc::Status::CANCELLED;
  };
  Start(false);
  ASSERT_TRUE(run_->AwaitReady(Clock::now() + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  const absl::Status status = run_->AwaitComputed(Clock::now() + milliseconds(300));
  EXPECT_EQ(wire::ReasonOf(status), "JOB_TIMEOUT") << status;
}

TEST_F(JobRunTest, WhatAWorkerSaysOfItsComputeIsNoMoreThanWasWaitedFor) {
  worker_.run = [](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready(); });
    ReadAll(stream);
    Send(stream, [](auto& r) { r.mutable_computed()->set_seconds(1e300); });
    Send(stream, [](auto& r) { r.mutable_figures(); });
    return grpc::Status::OK;
  };
  Start(false);
  const Clock::time_point start = Clock::now();
  ASSERT_TRUE(run_->AwaitReady(start + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  ASSERT_TRUE(run_->AwaitEnd().ok());
  EXPECT_LE(run_->compute_seconds(), SecondsBetween(start, Clock::now()));
}

TEST_F(JobRunTest, AnErrorIsHeardBeforeAllRowsHaveCome) {
  worker_.run = [](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready(); });
    Send(stream, [](auto& r) {
      r.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kInternal));
      r.mutable_failed()->set_message("the device failed");
      r.mutable_failed()->set_reason("ROWS_MISSHAPEN");
    });
    ReadAll(stream);  // rows that never come
    return grpc::Status::CANCELLED;
  };
  Start(false);
  ASSERT_TRUE(AwaitStop());
  EXPECT_TRUE(absl::IsInternal(stop_.why()));
  EXPECT_EQ(wire::ReasonOf(stop_.why()), "ROWS_MISSHAPEN");
}

TEST_F(JobRunTest, AnErrorIsHeardWhileTheClientDoesNotRead) {
  worker_.run = [this](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready()->set_shares_memory(true); });
    ReadAll(stream);
    Send(stream, [](auto& r) { r.mutable_final()->set_rows(32); });
    const Deadline limit = Clock::now() + kLong;
    while (outputs_ == 0 && Clock::now() < limit) std::this_thread::yield();
    return wire::ToGrpc(wire::WithReason(absl::DataLossError("a block is corrupt"), "BLOCK"));
  };
  Start(true);
  ASSERT_TRUE(run_->AwaitReady(Clock::now() + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  ASSERT_TRUE(AwaitStop());
  EXPECT_EQ(wire::ReasonOf(stop_.why()), "WORKER_DATA_LOSS");
  const Clock::time_point start = Clock::now();
  run_->End();
  EXPECT_LT(Clock::now() - start, kLong / 2);
}

// The reader waits for the client, with an output in its hand.
TEST_F(JobRunTest, AnErrorBehindOutputsIsHeardWhileTheClientDoesNotRead) {
  worker_.run = [this](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready(); });
    Send(stream, [](auto& r) {
      r.mutable_output()->set_tensor(v1::TENSOR_OUT);
      r.mutable_output()->set_rows(1);
      r.mutable_output()->set_payload(std::string(8 * 4, '\0'));
    });
    ReadAll(stream);
    return grpc::Status::CANCELLED;
  };
  Start(false);
  const Clock::time_point limit = Clock::now() + kLong;
  while (outputs_ == 0 && Clock::now() < limit) std::this_thread::yield();
  v1::RunFailure failure;
  failure.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kInternal));
  failure.mutable_failed()->set_reason("ROWS_MISSHAPEN");
  failure.set_run(worker_.number + 1);
  runs_.Tell("127.0.0.1:1", failure);
  failure.set_run(worker_.number);
  runs_.Tell("127.0.0.1:2", failure);
  EXPECT_TRUE(stop_.why().ok()) << "another run's and another worker's are not this one's";
  runs_.Tell("127.0.0.1:1", failure);
  EXPECT_EQ(wire::ReasonOf(stop_.why()), "ROWS_MISSHAPEN") << stop_.why();
  const Clock::time_point start = Clock::now();
  run_->End();
  EXPECT_LT(Clock::now() - start, kLong / 2);
  run_.reset();
  runs_.Tell("127.0.0.1:1", failure);  // of a run that has ended
}

TEST_F(JobRunTest, OutputsThatTheClientTakesLateAllCome) {
  worker_.run = [](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready()->set_shares_memory(true); });
    ReadAll(stream);
    Send(stream, [](auto& r) { r.mutable_final()->set_rows(16); });
    Send(stream, [](auto& r) { r.mutable_final()->set_rows(48); });
    Send(stream, [](auto& r) { r.mutable_computed()->set_seconds(0.001); });
    Send(stream, [](auto& r) { r.mutable_final()->set_rows(64); });
    Send(stream, [](auto& r) { r.mutable_figures(); });
    return grpc::Status::OK;
  };
  reads_from_ = Clock::now() + seconds(1);
  Start(true);
  ASSERT_TRUE(run_->AwaitReady(Clock::now() + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  ASSERT_TRUE(run_->AwaitComputed(Clock::now() + kLong).ok());
  ASSERT_TRUE(run_->AwaitEnd().ok());
  EXPECT_EQ(delivered_.out.count(), 64);
}

}  // namespace
}  // namespace hilbert_ring::server
