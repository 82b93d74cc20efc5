// Callers that take what they can, by intent or by mistake: threads, memory, places. The service
// refuses them, and serves the others meanwhile.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/descriptors.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// A figure of /proc/PID/status.
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

// Bytes that were resident at their most since the process started.
int64_t PeakBytes(pid_t pid) { return StatusFigure(pid, "VmHWM") << 10; }

// Of a client that may send anything.
std::shared_ptr<grpc::Channel> UnboundedChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// A job that was told to come back, for it was silent among calls that came after it, does so.
void ExpectAJobIsRight(const Cluster& cluster) {
  const JobSpec spec = PlainSpec();
  auto result = AttendRaw(*cluster.Stub(), spec, RandomInputs(spec, 1), 32, 1);
  for (int tries = 1; tries < 5 && wire::ReasonOf(result.status()) == "TOO_MANY_CALLS"; ++tries) {
    result = AttendRaw(*cluster.Stub(), spec, RandomInputs(spec, 1), 32, 1);
  }
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(Callers, CompressedZerosTakeNoMemory) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ExpectAJobIsRight(**cluster);
  grpc::ClientContext cluster_context;
  v1::GetClusterResponse described;
  ASSERT_TRUE((*cluster)->Stub()->GetCluster(&cluster_context, {}, &described).ok());
  const pid_t worker = (*cluster)->Workers().at(0);
  const int64_t coordinator_before = PeakBytes((*cluster)->coordinator());
  const int64_t worker_before = PeakBytes(worker);
  const std::string zeros(64 * kMiB, '\0');

  const auto channel = UnboundedChannel((*cluster)->address());
  const auto public_stub = v1::AttentionService::NewStub(channel);
  {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    const auto stream = public_stub->Attend(&context);
    v1::AttendRequest request;
    request.mutable_chunk()->set_payload(zeros);
    stream->Write(request);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::CancelJobRequest request;
    request.set_job_id(zeros);
    v1::CancelJobResponse response;
    EXPECT_EQ(public_stub->CancelJob(&context, request, &response).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  {
    const auto stub = v1::WorkerService::NewStub(UnboundedChannel(described.workers(0).address()));
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    const auto stream = stub->Run(&context);
    v1::RunRequest request;
    request.mutable_rows()->set_payload(zeros);
    stream->Write(request);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  ExpectAJobIsRight(**cluster);
  if (kResidentBytesAreTheSanitizers) {
    GTEST_SKIP() << "they are refused, but resident bytes are the sanitizer's";
  }
  RecordProperty("coordinator_mib",
                 (PeakBytes((*cluster)->coordinator()) - coordinator_before) / kMiB);
  RecordProperty("worker_mib", (PeakBytes(worker) - worker_before) / kMiB);
  EXPECT_LT(PeakBytes((*cluster)->coordinator()) - coordinator_before, 16 * kMiB);
  EXPECT_LT(PeakBytes(worker) - worker_before, 16 * kMiB);
}

// gRPC finds a message too long when it has it whole.
TEST(Callers, LongMessagesTakeNoMoreMemoryThanIsTheirs) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--transport-memory=64MiB"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ExpectAJobIsRight(**cluster);
  const int64_t before = PeakBytes((*cluster)->coordinator());
  v1::CancelJobRequest request;
  request.set_job_id(std::string(200 * kMiB, '\0'));
  {
    constexpr int kCallers = 3;
    std::vector<std::jthread> callers;
    callers.reserve(kCallers);
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&] {
        const auto stub = v1::AttentionService::NewStub(UnboundedChannel((*cluster)->address()));
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
        v1::CancelJobResponse response;
        const grpc::Status status = stub->CancelJob(&context, request, &response);
        // Where memory is short gRPC ends calls (or finds them too long), and connections that
        // have no call yet: a caller whose call would have come next is told GOAWAY.
        EXPECT_THAT(status.error_code(), AnyOf(Eq(grpc::StatusCode::RESOURCE_EXHAUSTED),
                                               Eq(grpc::StatusCode::UNAVAILABLE)))
            << status.error_message();
      });
    }
  }
  ExpectAJobIsRight(**cluster);
  if (kResidentBytesAreTheSanitizers) {
    GTEST_SKIP() << "they are refused, but resident bytes are the sanitizer's";
  }
  RecordProperty("coordinator_mib", (PeakBytes((*cluster)->coordinator()) - before) / kMiB);
  EXPECT_LT(PeakBytes((*cluster)->coordinator()) - before, (64 + 48) * kMiB);
}

// Attend calls of one caller that say nothing.
class SilentCalls {
 public:
  SilentCalls(const Cluster& cluster, int calls) : stub_(cluster.Stub()) {
    for (int i = 0; i < calls; ++i) {
      contexts_.push_back(std::make_unique<grpc::ClientContext>());
      contexts_.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
      streams_.push_back(stub_->Attend(contexts_.back().get()));
    }
  }

  absl::Status Finish(size_t call) { return wire::FromGrpc(streams_.at(call)->Finish()); }
  size_t size() const { return streams_.size(); }

 private:
  std::unique_ptr<v1::AttentionService::Stub> stub_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>>>
      streams_;
};

TEST(Callers, StreamsThatSayNothingKeepNobodyOutAndTakeNoThread) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ExpectAJobIsRight(**cluster);
  const int64_t threads = StatusFigure((*cluster)->coordinator(), "Threads");
  SilentCalls silent(**cluster, 1200);
  // Calls of one connection reach the service in their order.
  ExpectAJobIsRight(**cluster);
  EXPECT_LT(StatusFigure((*cluster)->coordinator(), "Threads"), threads + 8);
  const auto start = std::chrono::steady_clock::now();
  std::map<std::string, int> reasons;
  for (size_t call = 0; call < silent.size(); ++call) {
    ++reasons[wire::ReasonOf(silent.Finish(call))];
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
  EXPECT_GT(reasons["OPEN_TIMEOUT"], 50);  // --waiting-memory: 512 MiB, 5 MiB each
  EXPECT_EQ(reasons["OPEN_TIMEOUT"] + reasons["TOO_MANY_CALLS"], 1200);
  const auto metrics = (*cluster)->Metrics();
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(*metrics, HasSubstr("hilbert_ring_calls_refused_total{reason=\"OPEN_TIMEOUT\"}"));
  ExpectAJobIsRight(**cluster);
}

// The first message of a call may come while it gives way to another: it ends all the same.
TEST(Callers, CallsThatSpeakWhileTheyGiveWayEnd) {
  constexpr int kCallers = 8, kCallsOfEach = 1500;
  auto cluster =
      Cluster::Start({.workers = 1, .arguments = {"--waiting-memory=12MiB", "--log-level=error"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  JobSpec spec = PlainSpec();
  spec.tokens = 0;  // refused as soon as it is read
  std::vector<std::map<std::string, int>> reasons(kCallers);
  {
    std::vector<std::jthread> callers;
    callers.reserve(kCallers);
    for (std::map<std::string, int>& of_caller : reasons) {
      callers.emplace_back([&] {
        const auto stub = v1::AttentionService::NewStub(UnboundedChannel((*cluster)->address()));
        for (int i = 0; i < kCallsOfEach; ++i) {
          RawCall call(*stub, std::chrono::seconds(20));
          call.Open(spec);
          ++of_caller[wire::ReasonOf(call.Finish())];
        }
      });
    }
  }
  std::map<std::string, int> all;
  for (const auto& of_caller : reasons) {
    for (const auto& [reason, calls] : of_caller) all[reason] += calls;
  }
  EXPECT_EQ(all["TOO_MANY_CALLS"] + all["WAITING_MEMORY"] + all["INVALID_SPEC"],
            kCallers * kCallsOfEach)
      << ::testing::PrintToString(all);
  EXPECT_GT(all["TOO_MANY_CALLS"], 0);
}

TEST(Callers, RunsThatSayNothingKeepNobodyOut) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  grpc::ClientContext cluster_context;
  v1::GetClusterResponse described;
  ASSERT_TRUE((*cluster)->Stub()->GetCluster(&cluster_context, {}, &described).ok());
  const auto stub = v1::WorkerService::NewStub(UnboundedChannel(described.workers(0).address()));
  constexpr int kCalls = 600;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::RunRequest, v1::RunResponse>>> streams;
  for (int i = 0; i < kCalls; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    streams.push_back(stub->Run(contexts.back().get()));
  }
  ExpectAJobIsRight(**cluster);
  const auto start = std::chrono::steady_clock::now();
  for (const auto& stream : streams) EXPECT_FALSE(stream->Finish().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
  ExpectAJobIsRight(**cluster);
}

TEST(Callers, CallsOfAPeerAreCapped) {
  auto cluster = Cluster::Start({.workers = 2, .arguments = {"--max-calls-per-peer=3"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  std::vector<std::unique_ptr<RawCall>> calls;  // the first runs, the others wait
  v1::AttendResponse response;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(std::make_unique<RawCall>(*stub, std::chrono::seconds(60)));
    ASSERT_TRUE(calls.back()->Open(PlainSpec()));
    ASSERT_TRUE(calls.back()->Read(&response));
  }
  RawCall refused(*stub, std::chrono::seconds(60));
  refused.Open(PlainSpec());
  const absl::Status status = refused.Finish();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "TOO_MANY_CALLS");
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-calls-per-peer"));
  EXPECT_TRUE(refused.pushback_ms().has_value());
  calls.pop_back();
  calls.pop_back();  // and their places are free
  // Until the service has seen them end.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool taken = false;
  while (!taken && std::chrono::steady_clock::now() < limit) {
    RawCall next(*stub, std::chrono::seconds(60));
    next.Open(PlainSpec());
    taken = next.Read(&response);
  }
  EXPECT_TRUE(taken);
}

// Calls that write rows as fast as they can before they are admitted.
class EagerCalls {
 public:
  // Until one is refused.
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
        while (sending->Send(chunk_)) ++sent_;
      });
    }
  }
  ~EagerCalls() {
    for (const auto& call : calls_) call->Cancel();
    for (std::thread& writer : writers_) writer.join();
  }

  int sent() const { return sent_; }
  size_t size() const { return calls_.size(); }
  RawCall* refused() const { return refused_.get(); }

 private:
  v1::Chunk chunk_;
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> stubs_;
  std::vector<std::unique_ptr<RawCall>> calls_;
  std::unique_ptr<RawCall> refused_;
  std::vector<std::thread> writers_;
  std::atomic<int> sent_ = 0;
};

// What a process has resident, once that has not risen by a MiB for two seconds.
int64_t SettledBytes(pid_t pid) {
  int64_t settled = MemoryOf(pid).resident();
  for (int quiet = 0; quiet < 20; ++quiet) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const int64_t now = MemoryOf(pid).resident();
    if (now > settled + kMiB) {
      settled = now;
      quiet = 0;
    }
  }
  return settled;
}

TEST(Callers, JobsThatWaitHoldAMiBEach) {
  auto cluster = Cluster::Start({.workers = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawCall running(*stub, std::chrono::seconds(120));
  ASSERT_TRUE(running.Open(PlainSpec()));
  ASSERT_TRUE(running.AwaitAdmitted());
  const int64_t before = MemoryOf((*cluster)->coordinator()).resident();
  constexpr int kCalls = 16;
  const EagerCalls eager(**cluster, kCalls);
  ASSERT_EQ(eager.size(), static_cast<size_t>(kCalls));
  if (kResidentBytesAreTheSanitizers) {
    GTEST_SKIP() << "all of them wait, but resident bytes are the sanitizer's";
  }
  const int64_t held = SettledBytes((*cluster)->coordinator()) - before;
  RecordProperty("mib_held", held / kMiB);
  EXPECT_LT(held, kCalls * kMiB + 16 * kMiB) << "16 MiB: threads and connections";
}

TEST(Callers, JobsThatWaitAreBoundedTogether) {
  auto cluster = Cluster::Start({.workers = 2, .arguments = {"--waiting-memory=12MiB"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawCall running(*stub, std::chrono::seconds(120));
  ASSERT_TRUE(running.Open(PlainSpec()));
  ASSERT_TRUE(running.AwaitAdmitted());
  const EagerCalls eager(**cluster, 20);
  EXPECT_EQ(eager.size(), 7u) << "7 x 1 MiB, and 5 MiB until the first message has come";
  ASSERT_NE(eager.refused(), nullptr);
  const absl::Status status = eager.refused()->Finish();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "WAITING_MEMORY");
  EXPECT_TRUE(eager.refused()->pushback_ms().has_value());
}

// Connections to the HTTP port, each with the start of a request.
class IdleConnections {
 public:
  IdleConnections(int port, int connections, const std::string& start) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < connections; ++i) {
      // A port that takes no more of them does not hold the test up.
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      (void)connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
      if (!start.empty()) (void)send(fd, start.data(), start.size(), MSG_NOSIGNAL);
      sockets_.push_back(fd);
    }
  }
  ~IdleConnections() {
    for (const int fd : sockets_) close(fd);
  }

 private:
  std::vector<int> sockets_;
};

TEST(Callers, LivenessAnswersBehindAThousandConnections) {
  const int connections = std::min(1000, RaiseDescriptorLimit() - 192);  // the coordinator's too
  ASSERT_GE(connections, 50);
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  for (const char* start : {"", "GET /livez HTTP/1.1\r\nHost:"}) {
    const IdleConnections idle((*cluster)->http_port(), connections, start);
    const auto asked = std::chrono::steady_clock::now();
    const auto live = (*cluster)->HttpGet("/livez");
    EXPECT_TRUE(live.ok()) << live.status();
    EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(1));
  }
}

// A job of so many tokens with coordinates, admitted or refused.
absl::Status OpenWithCoordinates(RawCall& call, int64_t tokens) {
  JobSpec spec = PlainSpec({.tokens = tokens});
  spec.ordering = Ordering{.coordinate_axes = 2};
  call.Open(spec);
  v1::AttendResponse response;
  return call.Read(&response) ? absl::OkStatus() : call.Finish();
}

TEST(Callers, CoordinatesOfAllJobsTogetherAreBounded) {
  // 64 bytes a token.
  auto cluster = Cluster::Start({.workers = 2, .arguments = {"--total-order-memory-limit=14MiB"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  auto first = std::make_unique<RawCall>(*stub, std::chrono::seconds(60));
  EXPECT_TRUE(OpenWithCoordinates(*first, 100'000).ok());
  RawCall second(*stub, std::chrono::seconds(60));
  EXPECT_TRUE(OpenWithCoordinates(second, 100'000).ok());
  RawCall third(*stub, std::chrono::seconds(60));
  const absl::Status refused = OpenWithCoordinates(third, 100'000);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(wire::ReasonOf(refused), "ORDER_MEMORY");
  EXPECT_TRUE(third.pushback_ms().has_value());
  RawCall never(*stub, std::chrono::seconds(60));
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenWithCoordinates(never, 300'000)));
  first.reset();  // and its memory is free, once the service has seen it end
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  absl::Status again = refused;
  while (!again.ok() && std::chrono::steady_clock::now() < limit) {
    RawCall next(*stub, std::chrono::seconds(60));
    again = OpenWithCoordinates(next, 100'000);
  }
  EXPECT_TRUE(again.ok()) << again;
}

}  // namespace
}  // namespace hilbert_ring::testing
