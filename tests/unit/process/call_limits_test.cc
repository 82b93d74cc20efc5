#include "server/process/call_limits.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "server/process/grpc_endpoint.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kUntil{20};

template <typename Done>
bool Eventually(const Done& done) {
  const auto limit = std::chrono::steady_clock::now() + kUntil;
  while (!done() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  return done();
}

// Answers once it is told to, with so many bytes.
class SlowService : public v1::AttentionService::Service {
 public:
  explicit SlowService(const CallLimits& limits) : limits_(limits) {}

  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest*,
                          v1::GetClusterResponse* response) override {
    if (absl::Status room = limits_.Check(*context); !room.ok()) return wire::ToGrpc(room);
    ++begun;
    while (!answers) std::this_thread::yield();
    response->set_version(std::string(answer_bytes, 'x'));
    ++ended;
    return grpc::Status::OK;
  }

  std::atomic<int> begun = 0, ended = 0;
  std::atomic<bool> answers = false;
  std::atomic<int> answer_bytes = 1;

 private:
  const CallLimits& limits_;
};

class CallLimitsTest : public ::testing::Test {
 protected:
  static constexpr int kLimit = 2;

  void SetUp() override {
    auto endpoint =
        StartGrpc({.host = "127.0.0.1", .max_threads = 50, .short_calls = &limits_}, {&service_});
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
  }
  void TearDown() override {
    service_.answers = true;
    if (endpoint_.server != nullptr) endpoint_.Shutdown(std::chrono::milliseconds(0));
    EXPECT_EQ(limits_.calls(), 0);
  }

  std::unique_ptr<v1::AttentionService::Stub> Connect() const {
    return v1::AttentionService::NewStub(
        Dial(absl::StrCat("127.0.0.1:", endpoint_.port), std::chrono::seconds(10)));
  }

  static absl::Status Call(v1::AttentionService::Stub& stub) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kUntil);
    v1::GetClusterResponse response;
    return wire::FromGrpc(stub.GetCluster(&context, {}, &response));
  }

  static void ExpectRefused(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(wire::ReasonOf(status), "TOO_MANY_CALLS");
    EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1 has 2"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--max-short-calls-per-peer"));
  }

  CallLimits limits_{kLimit};
  SlowService service_{limits_};
  GrpcEndpoint endpoint_;
};

TEST_F(CallLimitsTest, AHostHasSoManyAtWork) {
  const auto stub = Connect();
  std::vector<std::future<absl::Status>> calls(kLimit);
  for (auto& call : calls) call = std::async(std::launch::async, [&] { return Call(*stub); });
  ASSERT_TRUE(Eventually([this] { return service_.begun == kLimit; }));
  for (int i = 0; i < 3; ++i) ExpectRefused(Call(*stub));
  ExpectRefused(Call(*Connect()));  // over another connection too
  EXPECT_EQ(service_.begun, kLimit);
  service_.answers = true;
  for (auto& call : calls) EXPECT_TRUE(call.get().ok());
  EXPECT_TRUE(Eventually([&] { return Call(*stub).ok(); }));
}

// An answer that is longer than the transport takes unasked keeps its thread until it is read.
TEST_F(CallLimitsTest, AnAnswerThatIsNotTakenIsStillAtWork) {
  service_.answers = true;
  service_.answer_bytes = 1 << 20;
  struct Unread {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    std::unique_ptr<v1::AttentionService::Stub> stub;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::GetClusterResponse>> call;
  };
  std::vector<Unread> unread(kLimit);
  for (Unread& one : unread) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // its window is 64 KiB, and stays so
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    one.stub = v1::AttentionService::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", endpoint_.port), grpc::InsecureChannelCredentials(), arguments));
    one.call = one.stub->AsyncGetCluster(&one.context, {}, &one.queue);
    one.call->ReadInitialMetadata(nullptr);  // the answer's begin, and no more
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(one.queue.Next(&tag, &ok) && ok);
  }
  EXPECT_EQ(service_.ended, kLimit);
  const auto stub = Connect();
  for (int i = 0; i < 5; ++i) {
    ExpectRefused(Call(*stub));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  unread.front().context.TryCancel();
  v1::GetClusterResponse response;
  for (Unread& one : unread) {
    grpc::Status status;
    one.call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    one.queue.Next(&tag, &ok);
  }
  EXPECT_TRUE(Eventually([&] { return Call(*stub).ok(); }));
}

}  // namespace
}  // namespace hilbert_ring::server
