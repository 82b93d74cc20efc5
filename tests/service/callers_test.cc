#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;

constexpr int64_t kMiB = int64_t{1} << 20;

int64_t StatusFigure(pid_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    int64_t value = 0;
    if (parts.size() > 1 && parts[0] == name && absl::SimpleAtoi(parts[1], &value)) return value;
  }
  return 0;
}

int64_t PeakBytes(pid_t pid) { return StatusFigure(pid, "VmHWM") << 10; }

// A job that is silent among later calls may be refused; it comes back.
void ExpectAJobIsRight(const Cluster& cluster) {
  const JobSpec spec = PlainSpec();
  auto result = AttendRaw(*cluster.Stub(), spec, RandomInputs(spec, 1), 32, 1);
  for (int tries = 1; tries < 5 && wire::ReasonOf(result.status()) == "TOO_MANY_CALLS"; ++tries) {
    result = AttendRaw(*cluster.Stub(), spec, RandomInputs(spec, 1), 32, 1);
  }
  EXPECT_TRUE(result.ok()) << result.status();
}

// gRPC knows a message's excess length only after its whole receipt.
TEST(Callers, LongMessagesStayWithinTheirMemory) {
  const auto cluster =
      Cluster::Start({.workers = 1, .arguments = {"--transport-memory=64MiB"}}).value();
  ExpectAJobIsRight(*cluster);
  const int64_t before = PeakBytes(cluster->coordinator());
  v1::CancelJobRequest request;
  request.set_job_id(std::string(200 * kMiB, '\0'));
  {
    std::vector<std::jthread> callers;
    callers.reserve(3);
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&] {
        grpc::ChannelArguments arguments;
        arguments.SetMaxSendMessageSize(-1);
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        const auto stub = v1::AttentionService::NewStub(grpc::CreateCustomChannel(
            cluster->address(), grpc::InsecureChannelCredentials(), arguments));
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
        v1::CancelJobResponse response;
        const grpc::Status status = stub->CancelJob(&context, request, &response);
        // gRPC short of memory ends calls, and closes connections that have no call yet.
        EXPECT_THAT(status.error_code(), AnyOf(Eq(grpc::StatusCode::RESOURCE_EXHAUSTED),
                                               Eq(grpc::StatusCode::UNAVAILABLE)))
            << status.error_message();
      });
    }
  }
  ExpectAJobIsRight(*cluster);
  if (kResidentBytesAreTheSanitizers) return;
  EXPECT_LT(PeakBytes(cluster->coordinator()) - before, (64 + 48) * kMiB);
}

TEST(Callers, SilentStreamsBlockNoCallerAndTakeNoThread) {
  constexpr int kCalls = 1200;
  const auto cluster = Cluster::Start({.workers = 1, .arguments = {"--open-timeout=3"}}).value();
  ExpectAJobIsRight(*cluster);
  const int64_t threads = StatusFigure(cluster->coordinator(), "Threads");
  const auto stub = cluster->Stub();
  std::vector<std::unique_ptr<RawCall>> silent;
  silent.reserve(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    silent.push_back(std::make_unique<RawCall>(*stub, std::chrono::seconds(60)));
  }
  ExpectAJobIsRight(*cluster);
  EXPECT_LT(StatusFigure(cluster->coordinator(), "Threads"), threads + 8);
  std::map<std::string, int> reasons;
  for (const auto& call : silent) ++reasons[wire::ReasonOf(call->Finish())];
  EXPECT_GT(reasons["CLIENT_IDLE"], 50);  // --waiting-memory: 512 MiB, 5 MiB each
  EXPECT_EQ(reasons["CLIENT_IDLE"] + reasons["TOO_MANY_CALLS"], kCalls);
  ExpectAJobIsRight(*cluster);
}

TEST(Callers, CallsOfAPeerAreCapped) {
  const auto cluster =
      Cluster::Start({.workers = 2, .arguments = {"--max-calls-per-peer=2"}}).value();
  const auto stub = cluster->Stub();
  const auto open = [&] {
    auto call = std::make_unique<RawCall>(*stub, std::chrono::seconds(60));
    call->Open(PlainSpec());
    return call;
  };
  v1::AttendResponse response;
  const auto running = open();
  auto waiting = open();
  ASSERT_TRUE(running->Read(&response) && waiting->Read(&response));
  const auto refused = open();
  const absl::Status status = refused->Finish();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "TOO_MANY_CALLS");
  EXPECT_TRUE(refused->retry_after_ms().has_value());
  waiting.reset();
  EXPECT_TRUE(Await([&] { return open()->Read(&response); }));
}

class EagerCalls {
 public:
  EagerCalls(const Cluster& cluster, int calls) {
    const JobSpec spec = PlainSpec({.tokens = 1 << 20});
    chunk_ = MakeChunk(v1::TENSOR_Q, std::string(3 * kMiB, '\0'), 128, 0, 24'576);
    for (int i = 0; i < calls; ++i) {
      stubs_.push_back(cluster.Stub());
      auto call = std::make_unique<RawCall>(*stubs_.back(), std::chrono::seconds(120));
      v1::AttendResponse response;
      if (!call->Open(spec) || !call->Read(&response)) {
        refused_ = std::move(call);
        break;
      }
      EXPECT_TRUE(response.has_queued());
      calls_.push_back(std::move(call));
      writers_.emplace_back([this, sending = calls_.back().get()] {
        while (sending->Send(chunk_)) {
        }
      });
    }
  }
  ~EagerCalls() {
    for (const auto& call : calls_) call->Cancel();
    for (std::thread& writer : writers_) writer.join();
  }

  size_t size() const { return calls_.size(); }
  RawCall* refused() const { return refused_.get(); }

 private:
  v1::Chunk chunk_;
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> stubs_;
  std::vector<std::unique_ptr<RawCall>> calls_;
  std::unique_ptr<RawCall> refused_;
  std::vector<std::thread> writers_;
};

int64_t SettledBytes(pid_t pid) {
  int64_t settled = MemoryOf(pid).resident();
  for (int quiet = 0; quiet < 10; ++quiet) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const int64_t now = MemoryOf(pid).resident();
    if (now > settled + kMiB) {
      settled = now;
      quiet = 0;
    }
  }
  return settled;
}

TEST(Callers, JobsThatWaitAreBoundedTogether) {
  const auto cluster =
      Cluster::Start({.workers = 2, .arguments = {"--waiting-memory=20MiB"}}).value();
  const auto stub = cluster->Stub();
  RawCall running(*stub, std::chrono::seconds(120));
  ASSERT_TRUE(running.Open(PlainSpec()) && running.AwaitAdmitted());
  const int64_t before = MemoryOf(cluster->coordinator()).resident();
  const EagerCalls eager(*cluster, 30);
  EXPECT_EQ(eager.size(), 15u) << "15 x 1 MiB, and 5 MiB until the first message has come";
  ASSERT_NE(eager.refused(), nullptr);
  EXPECT_EQ(wire::ReasonOf(eager.refused()->Finish()), "WAITING_MEMORY");
  EXPECT_TRUE(eager.refused()->retry_after_ms().has_value());
  if (kResidentBytesAreTheSanitizers) return;
  EXPECT_LT(SettledBytes(cluster->coordinator()) - before, 15 * kMiB + 16 * kMiB)
      << "16 MiB: threads and connections";
}

TEST(Callers, CoordinatesOfAllJobsTogetherAreBounded) {
  // 64 bytes a token: four jobs of 100,000.
  const auto cluster =
      Cluster::Start({.workers = 2, .arguments = {"--total-order-memory-limit=26MiB"}}).value();
  const auto stub = cluster->Stub();
  const auto open = [&](RawCall& call, int64_t tokens) {
    JobSpec spec = PlainSpec({.tokens = tokens});
    spec.ordering = Ordering{.coordinate_axes = 2};
    call.Open(spec);
    v1::AttendResponse response;
    return call.Read(&response) ? absl::OkStatus() : call.Finish();
  };
  std::vector<std::unique_ptr<RawCall>> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::make_unique<RawCall>(*stub, std::chrono::seconds(60)));
    EXPECT_TRUE(open(*calls.back(), 100'000).ok()) << i;
  }
  RawCall refused(*stub, std::chrono::seconds(60)), never(*stub, std::chrono::seconds(60));
  EXPECT_EQ(wire::ReasonOf(open(refused, 100'000)), "WAITING_MEMORY");
  EXPECT_TRUE(refused.retry_after_ms().has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(open(never, 300'000))) << "a job has a quarter";
  calls.pop_back();
  EXPECT_TRUE(Await([&] {
    RawCall next(*stub, std::chrono::seconds(60));
    return open(next, 100'000).ok();
  }));
}

}  // namespace
}  // namespace hilbert_ring::testing
