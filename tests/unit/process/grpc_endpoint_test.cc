#include "server/process/grpc_endpoint.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "server/process/interceptors.h"
#include "tests/support/silent_connection.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::server {
namespace {

grpc::Status CallUnary(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                       const std::string& request,
                       grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_compression_algorithm(compression);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  context.set_wait_for_ready(true);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

class SilentStream {
 public:
  SilentStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
    grpc::GenericStub stub(channel);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context_.set_wait_for_ready(true);
    call_ = stub.PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    Next();
    call_->Finish(&status_, nullptr);
  }
  ~SilentStream() {
    context_.TryCancel();
    if (!ended_) Next();
  }
  SilentStream(const SilentStream&) = delete;
  SilentStream& operator=(const SilentStream&) = delete;

  bool AwaitEnd(std::chrono::milliseconds limit) {
    void* tag = nullptr;
    bool ok = false;
    ended_ = ended_ || queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + limit) ==
                           grpc::CompletionQueue::GOT_EVENT;
    return ended_;
  }

 private:
  void Next() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  bool ended_ = false;
};

// Each stream takes a thread.
TEST(GrpcEndpoint, StreamsOfReflectionAreFewAndShort) {
  auto endpoint = StartGrpc({.host = "127.0.0.1", .max_threads = 200}, {});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto channel = Dial(absl::StrCat("127.0.0.1:", endpoint->port), std::chrono::seconds(10));
  std::vector<std::unique_ptr<SilentStream>> streams;
  streams.reserve(3 * kReflectionsOfPeer);
  for (int i = 0; i < 3 * kReflectionsOfPeer; ++i) {
    streams.push_back(std::make_unique<SilentStream>(
        channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"));
  }
  // they end by themselves later
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(3500);
  int open = 0;
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open = 0;
    for (const auto& stream : streams) open += !stream->AwaitEnd(std::chrono::milliseconds(0));
  } while (open > kReflectionsOfPeer && std::chrono::steady_clock::now() < limit);
  EXPECT_LE(open, kReflectionsOfPeer);
  EXPECT_GT(open, 0);
  if (DepthOfTests() == TestDepth::kAll) {  // they have 5 s
    for (const auto& stream : streams) EXPECT_TRUE(stream->AwaitEnd(std::chrono::seconds(20)));
  }
  endpoint->Shutdown(std::chrono::milliseconds(0));
}

TEST(GrpcEndpoint, CompressedMessagesAreRefusedBeforeTheyInflate) {
  auto endpoint = StartGrpc({.host = "127.0.0.1", .max_threads = 8}, {});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", endpoint->port),
                                           grpc::InsecureChannelCredentials());
  const std::string zeros(1 << 20, '\0');
  for (const auto compression : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const grpc::Status status =
        CallUnary(channel, "/grpc.health.v1.Health/Check", zeros, compression);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_TRUE(CallUnary(channel, "/grpc.health.v1.Health/Check", "").ok());
  endpoint->Shutdown(std::chrono::milliseconds(0));
}

bool LosesConnection(grpc::Channel& channel, std::chrono::milliseconds time) {
  return channel.WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + time);
}

TEST(GrpcEndpoint, AConnectionWithoutACallIsClosed) {
  auto endpoint = StartGrpc(
      {.host = "127.0.0.1", .max_threads = 8, .idle = std::chrono::milliseconds(300)}, {});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto channel = Dial(absl::StrCat("127.0.0.1:", endpoint->port), std::chrono::seconds(10));
  const std::string check = "/grpc.health.v1.Health/Check";
  ASSERT_TRUE(CallUnary(channel, check, "").ok());
  EXPECT_TRUE(LosesConnection(*channel, std::chrono::seconds(20)));
  EXPECT_TRUE(CallUnary(channel, check, "").ok()) << "the next call makes another";

  // An open call keeps the connection although nothing is sent.
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto watch = stub.PrepareCall(&context, "/grpc.health.v1.Health/Watch", &queue);
  watch->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  const grpc::Slice nothing("");
  watch->WriteLast(grpc::ByteBuffer(&nothing, 1), {}, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::ByteBuffer serving;
  watch->Read(&serving, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  EXPECT_FALSE(LosesConnection(*channel, std::chrono::milliseconds(900)));
  context.TryCancel();
  grpc::Status status;
  watch->Finish(&status, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  queue.Shutdown();
}

// No handler sees these calls: the connection bounds them.
TEST(GrpcEndpoint, CallsOfAConnectionAreLimited) {
  constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
  auto endpoint =
      StartGrpc({.host = "127.0.0.1", .max_threads = 8, .streams_per_connection = 3}, {});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto channel = Dial(absl::StrCat("127.0.0.1:", endpoint->port), std::chrono::seconds(10));
  ASSERT_TRUE(CallUnary(channel, kCheck, "").ok());
  {
    std::vector<std::unique_ptr<SilentStream>> silent;
    silent.reserve(3);
    for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<SilentStream>(channel, kCheck));
    std::promise<grpc::Status> promise;
    std::future<grpc::Status> answer = promise.get_future();
    const std::jthread caller([&] { promise.set_value(CallUnary(channel, kCheck, "")); });
    EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout)
        << "a fourth call is served";
    silent.pop_back();
    EXPECT_TRUE(answer.get().ok()) << "a call that ends makes room";
  }
  EXPECT_EQ(StreamsOfConnection(4), 132);
  EXPECT_EQ(StreamsOfConnection(1000), 1128);
  endpoint->Shutdown(std::chrono::milliseconds(0));
}

TEST(GrpcEndpoint, AcceptsAgainAfterDescriptorsRanOut) {
  auto endpoint = StartGrpc({.host = "127.0.0.1", .max_threads = 8}, {});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  ASSERT_TRUE(TakeAllDescriptors(endpoint->port));
  const auto channel = Dial(absl::StrCat("127.0.0.1:", endpoint->port), std::chrono::seconds(10));
  EXPECT_TRUE(CallUnary(channel, "/grpc.health.v1.Health/Check", "").ok());
  endpoint->Shutdown(std::chrono::milliseconds(0));
}

}  // namespace
}  // namespace hilbert_ring::server
