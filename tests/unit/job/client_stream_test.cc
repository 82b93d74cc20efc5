// The transport takes a message only when the client reads.
#include "server/job/client_stream.h"

#include <algorithm>
#include <future>
#include <memory>
#include <string>

#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/support/manual_time.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ManualTime;

class Service
    : public v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service> {
 public:
  Service(const PaceLimits& limits, const TimeSource& time) : limits_(limits), time_(time) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override {
    const std::shared_ptr<ClientStream> stream = ClientStream::Make(context, limits_, time_);
    stream->AwaitFirst([] {});
    opened.set_value(stream);
    return stream.get();
  }
  std::promise<std::shared_ptr<ClientStream>> opened;

 private:
  const PaceLimits limits_;
  const TimeSource& time_;
};

class ClientStreamTest : public ::testing::Test {
 protected:
  enum class Through { kProcess, kSocket };

  void Open(const PaceLimits& limits, Through through = Through::kProcess) {
    service_ = std::make_unique<Service>(limits, time_);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    server_ = builder.BuildAndStart();
    stub_ = v1::AttentionService::NewStub(
        through == Through::kProcess ? server_->InProcessChannel({})
                                     : grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                           grpc::InsecureChannelCredentials()));
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
  std::future<absl::Status> WriteAside(int position, const JobStop& stop) {
    return std::async(std::launch::async,
                      [this, position, &stop] { return stream_->Write(Position(position), stop); });
  }
  template <typename Result>
  Result Passing(std::future<Result> result, Clock::duration limit) {
    EXPECT_TRUE(time_.RunUntil(
        [&] { return result.wait_for(seconds(0)) == std::future_status::ready; }, limit));
    return result.get();
  }
  int ReadPosition() {
    v1::AttendResponse response;
    return client_->Read(&response) ? response.queued().position() : -1;
  }

  ManualTime time_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> client_;
  std::shared_ptr<ClientStream> stream_;
  bool ended_ = false;
};

TEST_F(ClientStreamTest, AWriteIsDueFromItsStart) {
  Open({.idle = seconds(4), .bytes_per_second = 0});
  std::vector<std::future<absl::Status>> writes;
  writes.reserve(3);
  for (int i = 0; i < 3; ++i) writes.push_back(WriteAside(i, stream_->stop()));
  const auto sent_off = [&] {
    return std::count_if(writes.begin(), writes.end(), [](const auto& write) {
      return write.wait_for(seconds(0)) == std::future_status::ready;
    });
  };
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(testing::Eventually([&] { return sent_off() == i + 1; }));
    time_.Advance(milliseconds(2500));
    if (i < 2) {
      ASSERT_TRUE(time_.AwaitWait(milliseconds(1), seconds(4)));
    }
    EXPECT_GE(ReadPosition(), 0);
  }
  for (auto& write : writes) EXPECT_TRUE(write.get().ok());
  EXPECT_TRUE(stream_->stop().why().ok()) << stream_->stop().why();
}

TEST_F(ClientStreamTest, MessagesMayLeaveWithTheNextOne) {
  Open({.idle = seconds(4), .bytes_per_second = 0}, Through::kSocket);
  v1::OutputChunk chunk;
  chunk.set_rows(1);
  // The client reads nothing, but the transport has taken the earlier messages.
  for (int i = 1; i <= 3; ++i) {
    auto output = std::make_unique<std::string>("rows");
    const auto handed = stream_->Write(chunk, *output, nullptr, kAnyPatience, stream_->stop(),
                                       ClientStream::SendMode::kWithNext);
    EXPECT_TRUE(handed.ok() && *handed) << handed.status();
    *output = "gone";  // it was copied
  }
  ended_ = true;
  stream_->End(v1::Report());
  v1::AttendResponse response;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(client_->Read(&response));
    EXPECT_EQ(response.output().payload(), "rows");
  }
  ASSERT_TRUE(client_->Read(&response));
  EXPECT_TRUE(response.has_report());
}

TEST_F(ClientStreamTest, OutputsThatLeaveWithTheReportAreInItsMessageWhileTheyAreFew) {
  Open({.idle = seconds(4), .bytes_per_second = 0}, Through::kSocket);
  v1::OutputChunk chunk;
  chunk.set_rows(1);
  const std::string most(64 << 10, 'a');
  for (const std::string& rows : {std::string("rows"), most}) {
    const auto sent_off = stream_->Write(chunk, rows, nullptr, kAnyPatience, stream_->stop(),
                                         ClientStream::SendMode::kWithReport);
    EXPECT_TRUE(sent_off.ok() && *sent_off) << sent_off.status();
  }
  v1::AttendResponse response;
  ASSERT_TRUE(client_->Read(&response));
  EXPECT_TRUE(response.output().payload() == most) << "the second one is too much";
  ended_ = true;
  stream_->End(v1::Report());
  ASSERT_TRUE(client_->Read(&response));
  EXPECT_TRUE(response.has_report());
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).payload(), "rows");
  EXPECT_EQ(response.outputs(0).rows(), 1);
}

TEST_F(ClientStreamTest, InputThatFollowsIsAwaitedAndReadOn) {
  Open({.idle = seconds(4), .bytes_per_second = 0});
  v1::AttendRequest request;
  request.mutable_chunk()->set_payload(std::string(1000, 'a'));
  ASSERT_TRUE(client_->Write(request));
  ClientMessage message;
  ASSERT_TRUE(*stream_->Read(message, stream_->stop()));
  stream_->ReadAhead();
  std::future<bool> writes = std::async(
      std::launch::async, [&] { return client_->Write(request) && client_->Write(request); });
  ASSERT_TRUE(testing::Eventually(
      [&] { return stream_->AwaitArrived(2000, server::JobClient::Input::kFollows); }));
  EXPECT_TRUE(writes.get());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(*stream_->Read(message, stream_->stop()));
  // Over this transport a message is written when it is read.
  writes = std::async(std::launch::async, [&] { return client_->Write(request); });
  EXPECT_TRUE(*stream_->Read(message, stream_->stop()));
  EXPECT_TRUE(writes.get());
}

TEST_F(ClientStreamTest, AwaitsRowsOnTheirWay) {
  Open({.idle = seconds(4), .bytes_per_second = 0});
  EXPECT_FALSE(stream_->AwaitArrived(1, server::JobClient::Input::kMayFollow))
      << "nothing has come, and nothing may come";
  v1::AttendRequest request;
  request.mutable_chunk()->set_payload(std::string(1000, 'a'));
  ASSERT_TRUE(client_->Write(request));
  ClientMessage message;
  ASSERT_TRUE(*stream_->Read(message, stream_->stop()));
  stream_->ReadAhead();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->Write(request));
  ASSERT_TRUE(testing::Eventually(
      [&] { return stream_->AwaitArrived(3000, server::JobClient::Input::kMayFollow); }));
  EXPECT_FALSE(stream_->AwaitArrived(1 << 20, server::JobClient::Input::kMayFollow))
      << "it does not wait for long";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*stream_->Read(message, stream_->stop()));
  EXPECT_FALSE(stream_->AwaitArrived(1, server::JobClient::Input::kMayFollow)) << "all was read";
}

TEST_F(ClientStreamTest, AClientThatStillSendsMayReadLater) {
  Open({.idle = seconds(3), .bytes_per_second = 0});
  ASSERT_TRUE(stream_->Write(Position(1), stream_->stop()).ok());
  auto write = WriteAside(2, stream_->stop());
  stream_->ReadAhead();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(time_.AwaitWait(seconds(0), seconds(3)));
    time_.Advance(seconds(2));
    v1::AttendRequest request;
    request.mutable_chunk()->set_rows(i);
    ASSERT_TRUE(client_->Write(request));
    ClientMessage message;
    ASSERT_TRUE(stream_->Read(message, stream_->stop()).ok());
  }
  EXPECT_EQ(ReadPosition(), 1);
  EXPECT_EQ(ReadPosition(), 2);
  EXPECT_TRUE(write.get().ok());
}

TEST_F(ClientStreamTest, AStopWakesEveryWriterAndLeavesTheStreamToTheNextAttempt) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  JobStop attempt;
  ASSERT_TRUE(stream_->Write(Position(1), attempt).ok());
  std::vector<std::future<absl::Status>> writes;
  writes.reserve(3);
  for (int i = 0; i < 3; ++i) writes.push_back(WriteAside(2, attempt));
  ASSERT_TRUE(time_.AwaitWait(seconds(300)));
  attempt.Request(absl::AbortedError("a worker was lost"));
  for (auto& write : writes) EXPECT_TRUE(absl::IsAborted(write.get()));
  JobStop next;
  auto write = WriteAside(3, next);
  EXPECT_EQ(ReadPosition(), 1);
  EXPECT_EQ(ReadPosition(), 3);
  EXPECT_TRUE(write.get().ok());
}

TEST_F(ClientStreamTest, WhileTheClientDoesNotReadPatienceEndsAndOffersAreDropped) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  stream_->Offer(Position(1));
  stream_->Offer(Position(2));
  const std::string payload = "rows";
  const auto handed = Passing(
      std::async(std::launch::async,
                 [&] {
                   return stream_->Write(v1::OutputChunk(), payload, nullptr, milliseconds(20),
                                         stream_->stop(), ClientStream::SendMode::kNow);
                 }),
      milliseconds(20));
  ASSERT_TRUE(handed.ok());
  EXPECT_FALSE(*handed);
  EXPECT_EQ(ReadPosition(), 1);
  auto write = WriteAside(3, stream_->stop());
  EXPECT_EQ(ReadPosition(), 3);
  EXPECT_TRUE(write.get().ok());
}

TEST_F(ClientStreamTest, AMessageIsInUseUntilTheTransportTakesIt) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  ASSERT_TRUE(stream_->Write(Position(1), stream_->stop()).ok());
  auto taken = std::async(std::launch::async, [&] { return stream_->AwaitTaken(stream_->stop()); });
  ASSERT_TRUE(time_.AwaitWait(seconds(300))) << "it was in no use";
  EXPECT_EQ(ReadPosition(), 1);
  EXPECT_TRUE(taken.get().ok());
}

TEST_F(ClientStreamTest, TheReportWaitsForEarlierMessages) {
  Open({.idle = seconds(300), .bytes_per_second = 0});
  stream_->Offer(Position(1));
  ended_ = true;
  auto end = std::async(std::launch::async, [&] { stream_->End(v1::Report()); });
  ASSERT_TRUE(time_.AwaitWait(seconds(300))) << "it has ended the call";
  EXPECT_EQ(ReadPosition(), 1);
  v1::AttendResponse response;
  EXPECT_TRUE(client_->Read(&response) && response.has_report());
}

}  // namespace
}  // namespace hilbert_ring::server
