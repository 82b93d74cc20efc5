// A run over a worker that says what the test wants.
#include "server/job/job_run.h"

#include <atomic>
#include <future>

#include "gmock/gmock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/rows/job_input.h"
#include "tests/support/manual_time.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;
using testing::ManualTime;
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
    member->channel = server_->InProcessChannel({});
    members_ = {member};
  }
  ~JobRunTest() override {
    run_.reset();
    server_->Shutdown();
  }

  // share: the worker gets its shard in shared memory. placed: rows have places. The output blocks
  // until the client reads.
  void Start(bool share, bool placed = true) {
    run_.emplace(
        JobRunOptions{.job_id = "job",
                      .plan = &plan_,
                      .work = work_.get(),
                      .members = members_,
                      .stall_timeout = stall_timeout_,
                      .share_memory = share,
                      .shards = &shards_,
                      .threads = &threads_,
                      .copies = &copies_,
                      .held = &held_,
                      .delivered = &delivered_,
                      .runs = &runs_,
                      .time = &time_,
                      .output = [this](int, const v1::OutputChunk&, std::string_view,
                                       const std::shared_ptr<const void>&,
                                       Clock::duration patience) -> absl::StatusOr<bool> {
                        ++outputs_;
                        MutexLock lock(mutex_);
                        Deadline limit = time_.Now() + std::min<Clock::duration>(patience, kLong);
                        if (reads_from_) limit = std::min(limit, *reads_from_);
                        time_.WaitUntil(changed_, lock, stop_.token(), limit, [] { return false; });
                        if (!stop_.why().ok()) return stop_.why();
                        return reads_from_ && time_.Now() >= *reads_from_;
                      },
                      .progress = [](double, int64_t) {}},
        stop_);
    run_->Open();
    if (placed) EXPECT_TRUE(run_->SendOrder(router_).ok());
  }

  // Until the attempt's stop, while waits for the client pass; whether it came.
  bool AwaitStop() {
    return time_.RunUntil([&] { return !stop_.why().ok(); }, seconds(1));
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

  const Plan plan_ = *MakePlan(PlainSpec({.heads = 1, .dim = 8}), 1);
  const std::unique_ptr<server::JobWork> work_ = server::MakeAttentionWork(plan_.spec, {});
  const RowRouter router_{work_->shape(), plan_.shards, nullptr};  // slots are tokens
  FakeWorker worker_;
  std::unique_ptr<grpc::Server> server_;
  Members members_;
  SharedMemoryPool shards_{milliseconds(10)};
  KeptThreads threads_;
  JobMemory copies_{0};
  HeldRows held_;
  Delivered delivered_{64};
  OpenRuns runs_;
  JobStop stop_;
  ManualTime time_;
  Mutex mutex_;
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
      r.mutable_output()->set_crc32c(wire::Crc32c(r.output().payload()));
    });
    Send(stream, [](auto& r) { r.mutable_computed()->set_seconds(0.012); });
    Send(stream, [](auto& r) { r.mutable_figures(); });
    return grpc::Status::OK;
  };
  reads_from_ = time_.Now() + seconds(5);
  stall_timeout_ = seconds(2);  // which a worker that waits for the client does not count for
  Start(false);
  ASSERT_TRUE(run_->AwaitReady(time_.Now() + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  // A job timeout that is over long before the client reads.
  const Deadline timeout = time_.Now() + seconds(2);
  auto computed = std::async(std::launch::async, [&] { return run_->AwaitComputed(timeout); });
  ASSERT_TRUE(Eventually([&] { return outputs_ > 0; }));
  ASSERT_TRUE(time_.RunUntil([&] { return time_.Now() >= *reads_from_; }, seconds(5)));
  const absl::Status status = computed.get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(run_->AwaitEnd().ok());
  EXPECT_DOUBLE_EQ(run_->compute_seconds(), 0.012);
}

TEST_F(JobRunTest, AWorkerThatDoesNotComputeInTimeIsNamed) {
  worker_.run = [this](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready(); });
    ReadAll(stream);
    Eventually([&] { return !stop_.why().ok(); });
    return grpc::Status::CANCELLED;
  };
  Start(false);
  ASSERT_TRUE(run_->AwaitReady(time_.Now() + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  const Deadline timeout = time_.Now() + milliseconds(300);
  auto computed = std::async(std::launch::async, [&] { return run_->AwaitComputed(timeout); });
  ASSERT_TRUE(time_.RunUntil([&] { return !stop_.why().ok(); }, milliseconds(300)));
  EXPECT_GE(time_.Now(), timeout);
  const absl::Status status = computed.get();
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
  const Clock::time_point start = time_.Now();
  ASSERT_TRUE(run_->AwaitReady(start + kLong).ok());
  time_.Advance(seconds(3));
  ASSERT_TRUE(run_->FinishRows().ok());
  ASSERT_TRUE(run_->AwaitComputed(time_.Now() + kLong).ok());
  EXPECT_LE(run_->compute_seconds(), SecondsBetween(start, time_.Now()));
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

TEST_F(JobRunTest, OutputsBeforeThereCanBeRowsAreAnError) {
  worker_.run = [](Stream& stream) {
    Send(stream, [](auto& r) {
      r.mutable_output()->set_tensor(v1::TENSOR_OUT);
      r.mutable_output()->set_rows(64);
      r.mutable_output()->set_payload(std::string(64 * 8 * 4, '\0'));
      r.mutable_output()->set_crc32c(wire::Crc32c(r.output().payload()));
    });
    ReadAll(stream);
    return grpc::Status::CANCELLED;
  };
  Start(false, false);
  ASSERT_TRUE(AwaitStop());
  EXPECT_TRUE(absl::IsInternal(stop_.why())) << stop_.why();
  EXPECT_THAT(std::string(stop_.why().message()),
              ::testing::HasSubstr("before it could have rows"));
  EXPECT_EQ(outputs_, 0);
}

TEST_F(JobRunTest, AnErrorIsHeardWhileTheClientDoesNotRead) {
  worker_.run = [this](Stream& stream) {
    Send(stream, [](auto& r) { r.mutable_ready()->set_shares_memory(true); });
    ReadAll(stream);
    Send(stream, [](auto& r) { r.mutable_final()->set_rows(32); });
    Eventually([&] { return outputs_ > 0; });
    return wire::ToGrpc(wire::WithReason(absl::DataLossError("a block is corrupt"), "BLOCK"));
  };
  Start(true);
  ASSERT_TRUE(run_->AwaitReady(time_.Now() + kLong).ok());
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
      r.mutable_output()->set_crc32c(wire::Crc32c(r.output().payload()));
    });
    ReadAll(stream);
    return grpc::Status::CANCELLED;
  };
  Start(false);
  ASSERT_TRUE(Eventually([&] { return outputs_ > 0; }));
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
  reads_from_ = time_.Now() + seconds(1);
  Start(true);
  ASSERT_TRUE(run_->AwaitReady(time_.Now() + kLong).ok());
  ASSERT_TRUE(run_->FinishRows().ok());
  const Deadline timeout = time_.Now() + kLong;
  auto computed = std::async(std::launch::async, [&] { return run_->AwaitComputed(timeout); });
  ASSERT_TRUE(Eventually([&] { return outputs_ > 0; }));
  ASSERT_TRUE(time_.RunUntil([&] { return time_.Now() >= *reads_from_; }, seconds(1)));
  ASSERT_TRUE(computed.get().ok());
  ASSERT_TRUE(run_->AwaitEnd().ok());
  EXPECT_EQ(delivered_.of(TensorKind::kOut).count(), 64);
}

}  // namespace
}  // namespace hilbert_ring::server
