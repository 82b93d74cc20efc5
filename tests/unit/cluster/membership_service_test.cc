#include "server/cluster/membership_service.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/metrics.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/tokens.h"
#include "server/process/version.h"
#include "tests/support/captured_log.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLimit{20'000};
constexpr char kToken[] = "correct-horse-battery-staple";

class Greeted : public v1::WorkerService::Service {
 public:
  explicit Greeted(std::string secret) : secret_(std::move(secret)) {}
  grpc::Status Greet(grpc::ServerContext* context, const v1::GreetRequest*,
                     v1::GreetResponse*) override {
    ++greetings;
    while (silent && !context->IsCancelled()) std::this_thread::sleep_for(milliseconds(5));
    const std::lock_guard lock(mutex_);
    return wire::ToGrpc(CheckCallToken(*context, secret_, "Greet"));
  }
  void Set(std::string secret) {
    const std::lock_guard lock(mutex_);
    secret_ = std::move(secret);
  }

  std::atomic<bool> silent = false;  // like an address translation that has forgotten the worker
  std::atomic<int> greetings = 0;

 private:
  std::mutex mutex_;
  std::string secret_;
};

struct Registered {
  explicit Registered(v1::MembershipService::Stub& stub, const std::string& token) {
    context.set_deadline(std::chrono::system_clock::now() + kLimit);
    AddJoinToken(context, token);
    stream = stub.Register(&context);
  }
  ~Registered() {
    context.TryCancel();
    if (!finished) stream->Finish();
  }
  absl::Status Finish() {
    finished = true;
    return wire::FromGrpc(stream->Finish());
  }

  v1::HeartbeatReply Beat(const std::string& address) {
    v1::Heartbeat beat;
    beat.set_address(address);
    beat.set_version(std::string(kVersion));
    beat.set_memory_limit_bytes(1 << 30);
    stream->Write(beat);
    v1::HeartbeatReply reply;
    EXPECT_TRUE(stream->Read(&reply));
    return reply;
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::Heartbeat, v1::HeartbeatReply>> stream;
  bool finished = false;
};

class MembershipServiceTest : public ::testing::Test {
 protected:
  void Start(const std::string& token) {
    service_.emplace(membership_, gate_, metrics_, token, "", milliseconds(100));
    endpoint_ = *StartGrpc({.host = "127.0.0.1", .max_threads = 16}, {&*service_});
    stub_ =
        v1::MembershipService::NewStub(Dial(absl::StrCat("127.0.0.1:", endpoint_.port), kLimit));
  }
  void TearDown() override {
    endpoint_.Shutdown(std::chrono::milliseconds(0));
    endpoint_.server->Wait();
  }

  // Beats until the reply is up or has a reason.
  static v1::HeartbeatReply BeatUntilDecided(Registered& worker, const std::string& address) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    v1::HeartbeatReply reply;
    do {
      std::this_thread::sleep_for(milliseconds(10));
      reply = worker.Beat(address);
    } while (!reply.up() && reply.reason().empty() && std::chrono::steady_clock::now() < end);
    return reply;
  }

  const testing::CapturedLog log_;  // first and last: threads of the others write to it
  std::atomic<int> failures_ = 0;
  Membership membership_{milliseconds(60'000),
                         {.joined = [](const Member&) {},
                          .left = [](const Member&) {},
                          .gone = [](const std::string&) {},
                          .closed = [](const Member&) {},
                          .failed = [this](const Member&) { ++failures_; },
                          .beat = [](const Member&, const v1::Heartbeat&) {}}};
  Metrics metrics_{{.methods = {"Register"}, .reasons = {}, .causes = {}}};
  CallGate gate_{{.calls_per_peer = 16, .open_timeout = kLimit}};
  std::optional<MembershipService> service_;
  GrpcEndpoint endpoint_;
  std::unique_ptr<v1::MembershipService::Stub> stub_;
};

TEST_F(MembershipServiceTest, TakesWorkersWithTheTokenAlone) {
  Start(kToken);
  for (const char* wrong : {"", "wrong-horse-battery-staple"}) {
    Registered worker(*stub_, wrong);
    v1::HeartbeatReply reply;
    EXPECT_FALSE(worker.stream->Read(&reply));
    const absl::Status refused = worker.Finish();
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
    EXPECT_EQ(wire::ReasonOf(refused), "JOIN_TOKEN");
  }
  EXPECT_TRUE(membership_.Describe().empty());
  Registered worker(*stub_, kToken);
  EXPECT_FALSE(worker.Beat("127.0.0.1:1").secret().empty());
  EXPECT_EQ(membership_.Describe().size(), 1u);
}

TEST_F(MembershipServiceTest, AnUnreachableWorkerGetsNoJobsUntilItAnswers) {
  Start("");
  Greeted answers("");
  auto there = StartGrpc({.host = "127.0.0.1", .max_threads = 4}, {&answers});
  ASSERT_TRUE(there.ok());
  const std::string address = absl::StrCat("127.0.0.1:", there->port);
  Registered worker(*stub_, "");
  answers.Set(worker.Beat(address).secret());
  v1::HeartbeatReply reply;
  const auto beats_until = [&](const auto& done) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (!done() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(20));
      reply = worker.Beat(address);
    }
    return done();
  };
  ASSERT_TRUE(beats_until([&] { return reply.up(); }));
  const Members members = membership_.Live();
  membership_.SetJob(members, "job-a");
  std::this_thread::sleep_for(milliseconds(50));  // a greeting may be under way
  int greeted = answers.greetings;
  const auto worked_until = std::chrono::steady_clock::now() + milliseconds(500);
  EXPECT_TRUE(beats_until([&] { return std::chrono::steady_clock::now() > worked_until; }));
  EXPECT_LE(answers.greetings, greeted + 1);
  membership_.SetJob(members, "");
  greeted = answers.greetings;
  EXPECT_TRUE(beats_until([&] { return answers.greetings > greeted + 2; }));
  EXPECT_TRUE(reply.up());
  EXPECT_EQ(failures_, 0);

  answers.silent = true;
  EXPECT_TRUE(beats_until([&] { return !reply.up(); }));
  EXPECT_THAT(reply.reason(), HasSubstr("cannot be reached"));
  EXPECT_THAT(reply.reason(), HasSubstr("no answer within"));
  EXPECT_TRUE(membership_.Live().empty());
  EXPECT_EQ(failures_, 1);
  EXPECT_EQ(log_.Count("cannot be reached at this address any more"), 1) << log_.text();

  answers.silent = false;
  EXPECT_TRUE(beats_until([&] { return reply.up(); }));
  EXPECT_EQ(reply.reason(), "");
  EXPECT_EQ(membership_.Live().size(), 1u);
  EXPECT_EQ(log_.Count("worker answers again"), 1) << log_.text();
  there->Shutdown(std::chrono::milliseconds(0));
}

TEST_F(MembershipServiceTest, AWorkerDoesNotTakeTheAddressOfAnother) {
  Start("");
  Greeted answers("another secret");
  auto there = StartGrpc({.host = "127.0.0.1", .max_threads = 4}, {&answers});
  ASSERT_TRUE(there.ok());
  const std::string address = absl::StrCat("127.0.0.1:", there->port);
  Registered worker(*stub_, "");
  const v1::HeartbeatReply reply = BeatUntilDecided(worker, address);
  EXPECT_FALSE(reply.up());
  EXPECT_THAT(reply.reason(), HasSubstr("another process"));
  EXPECT_TRUE(membership_.Live().empty());
  there->Shutdown(std::chrono::milliseconds(0));
}

}  // namespace
}  // namespace hilbert_ring::server
