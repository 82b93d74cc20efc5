// A stream between a real client and server of one process: what the client does not read, the
// transport does not take.
#include "server/job/attend_stream.h"

#include <future>
#include <thread>

#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Service
    : public v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service> {
 public:
  explicit Service(const PaceLimits& limits) : limits_(limits) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override {
    const std::shared_ptr<AttendStream> stream = AttendStream::Make(context, limits_);
    stream->AwaitFirst([] {});
    opened.set_value(stream);
    return stream.get();
  }
  std::promise<std::shared_ptr<AttendStream>> opened;

 private:
  const PaceLimits limits_;
};

class AttendStreamTest : public ::testing::Test {
 protected:
  void Open(const PaceLimits& limits) {
    service_ = std::make_unique<Service>(limits);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    stub_ = v1::AttentionService::NewStub(server_->InProcessChannel({}));
    client_ = stub_->Attend(&context_);
    stream_ = service_->opened.get_future().get();
  }
  void TearDown() override {
    context_.TryCancel();
    client_->Finish();
    // A call that was cancelled is done when its reactor has finished it.
    if (!ended_) stream_->End(absl::CancelledError("the test is over"), std::nullopt);
    stream_->AwaitDone(milliseconds(10'000));
    server_->Shutdown();
  }

  static v1::AttendResponse Position(int position) {
    v1::AttendResponse response;
    response.mutable_queued()->set_position(position);
    return response;
  }
  int ReadPosition() {
    v1::AttendResponse response;
    return client_->Read(&response) ? response.queued().position() : -1;
  }

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> client_;
  std::shared_ptr<AttendStream> stream_;
  bool ended_ = false;
};

TEST_F(AttendStreamTest, AWriteIsDueFromWhenItWasHanded) {
  Open({.idle = seconds(4), .bytes_per_second = 0});
  // Three writers at once; each message is read 2.5 s after the one before was.
  std::vector<std::future<absl::Status>> writes;
  for (int i = 0; i < 3; ++i) {
    writes.push_back(std::async(std::launch::async,
                                [&, i] { return stream_->Write(Position(i), stream_->stop()); }));
  }
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(milliseconds(2500));
    EXPECT_GE(ReadPosition(), 0);
  }
  for (auto& write : writes) EXPECT_TRUE(write.get().ok());
  EXPECT_TRUE(stream_->stop().why().ok()) << stream_->stop().why();
}

TEST_F(AttendStreamTest, AClientThatDoesNotReadIsIdle) {
  Open({.idle = milliseconds(200), .bytes_per_second = 0});
  ASSERT_TRUE(stream_->Write(Position(1), stream_->stop()).ok());
  const absl::Status status = stream_->Write(Position(2), stream_->stop());
  EXPECT_EQ(wire::ReasonOf(status), "CLIENT_IDLE") << status;
  EXPECT_EQ(stream_->stop().why(), status);
}

TEST_F(AttendStreamTest, AClientThatStillSendsMayReadLater) {
  Open({.idle = seconds(3), .bytes_per_second = 0});
  ASSERT_TRUE(stream_->Write(Position(1), stream_->stop()).ok());
  auto write =
      std::async(std::launch::async, [&] { return stream_->Write(Position(2), stream_->stop()); });
  stream_->ReadAhead();
  for (int i = 0; i < 15; ++i) {
    std::this_thread::sleep_for(milliseconds(300));
    v1::AttendRequest request;
    request.mutable_chunk()->set_rows(i);
    ASSERT_TRUE(client_->Write(request));
    AttendMessage message;
    ASSERT_TRUE(stream_->Read(message, stream_->stop()).ok());
  }
  EXPECT_EQ(ReadPosition(), 1);
  EXPECT_EQ(ReadPosition(), 2);
  EXPECT_TRUE(write.get().ok());
}

TEST_F(AttendStreamTest, AStopWakesEveryWriterAndLeavesTheStreamToTheNextAttempt) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  JobStop attempt;
  ASSERT_TRUE(stream_->Write(Position(1), attempt).ok());
  std::vector<std::future<absl::Status>> writes;
  for (int i = 0; i < 3; ++i) {
    writes.push_back(
        std::async(std::launch::async, [&] { return stream_->Write(Position(2), attempt); }));
  }
  for (auto& write : writes) {
    EXPECT_EQ(write.wait_for(milliseconds(100)), std::future_status::timeout);
  }
  const Clock::time_point start = Clock::now();
  attempt.Request(absl::AbortedError("a worker was lost"));
  for (auto& write : writes) EXPECT_TRUE(absl::IsAborted(write.get()));
  EXPECT_LT(Clock::now() - start, seconds(10));
  // What was handed over comes, what was not does not.
  JobStop next;
  auto write = std::async(std::launch::async, [&] { return stream_->Write(Position(3), next); });
  EXPECT_EQ(ReadPosition(), 1);
  EXPECT_EQ(ReadPosition(), 3);
  EXPECT_TRUE(write.get().ok());
}

TEST_F(AttendStreamTest, PatienceEndsAndOffersAreLeftOutWhileTheClientDoesNotRead) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  stream_->Offer(Position(1));
  stream_->Offer(Position(2));
  const std::string payload = "rows";
  const auto handed =
      stream_->Write(v1::OutputChunk(), payload, nullptr, milliseconds(20), stream_->stop());
  ASSERT_TRUE(handed.ok());
  EXPECT_FALSE(*handed);
  EXPECT_EQ(ReadPosition(), 1);
  auto write =
      std::async(std::launch::async, [&] { return stream_->Write(Position(3), stream_->stop()); });
  EXPECT_EQ(ReadPosition(), 3);
  EXPECT_TRUE(write.get().ok());
}

TEST_F(AttendStreamTest, WhatWasHandedOverIsInUseUntilItIsTaken) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  ASSERT_TRUE(stream_->Write(Position(1), stream_->stop()).ok());
  auto taken = std::async(std::launch::async, [&] { return stream_->AwaitTaken(stream_->stop()); });
  EXPECT_EQ(taken.wait_for(milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(ReadPosition(), 1);
  EXPECT_TRUE(taken.get().ok());
}

TEST_F(AttendStreamTest, TheReportWaitsForWhatWasWrittenBefore) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  stream_->Offer(Position(1));
  ended_ = true;
  auto end = std::async(std::launch::async, [&] { stream_->End(v1::Report()); });
  EXPECT_EQ(end.wait_for(milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(ReadPosition(), 1);
  v1::AttendResponse response;
  EXPECT_TRUE(client_->Read(&response) && response.has_report());
}

TEST_F(AttendStreamTest, AClientThatSendsNothingIsIdle) {
  Open({.idle = milliseconds(200), .bytes_per_second = 0});
  AttendMessage message;
  const auto more = stream_->Read(message, stream_->stop());
  EXPECT_EQ(wire::ReasonOf(more.status()), "CLIENT_IDLE") << more.status();
}

}  // namespace
}  // namespace hilbert_ring::server
