#include "server/worker/worker_service.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/device/device.h"
#include "gtest/gtest.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/tokens.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/device/forwarding_device.h"
#include "tests/unit/worker/run_call_rig.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using run_call_rig::OpenOf;
using run_call_rig::Rows;
using std::chrono::milliseconds;

constexpr int64_t kMemoryLimit = int64_t{64} << 20;
constexpr milliseconds kAnswerLimit{20'000};
constexpr int kLanes = 3;

class DeviceThatMayFail : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    if (fails) return absl::DataLossError("the device failed");
    return ForwardingDevice::Attend(tasks, control);
  }
  std::atomic<bool> fails = false;
};

class WorkerServiceTest : public ::testing::Test {
 protected:
  void Start(milliseconds feed_timeout, bool share_memory = false) {
    state_.reset(new WorkerState{.memory = JobMemory(kMemoryLimit),
                                 .rings = RingTable(MakeRingTransport("127.0.0.1")),
                                 .share_memory = share_memory,
                                 .feed_timeout = feed_timeout});
    for (int lane = 0; lane < kLanes; ++lane) state_->lanes.emplace_back(device_);
    service_.emplace(*state_);
    auto endpoint = StartGrpc({.host = "127.0.0.1", .max_threads = 16}, {&*service_});
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
    stub_ =
        v1::WorkerService::NewStub(Dial(absl::StrCat("127.0.0.1:", endpoint_.port), kAnswerLimit));
  }

  void TearDown() override {
    if (endpoint_.server == nullptr) return;
    endpoint_.Shutdown(std::chrono::milliseconds(0));
    endpoint_.server->Wait();
  }

  static std::unique_ptr<grpc::ClientContext> Context(const std::string& secret, const char* call) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + kAnswerLimit);
    if (!secret.empty()) AddCallToken(*context, secret, call);
    return context;
  }

  absl::Status OpenAndSendNothing(const std::string& secret,
                                  const v1::RunRequest& open = OpenOf(PlainSpec())) {
    const auto context = Context(secret, "Run");
    const auto run = stub_->Run(context.get());
    run->Write(open);
    v1::RunResponse response;
    while (run->Read(&response)) {
    }
    return wire::FromGrpc(run->Finish());
  }

  const std::string secret_ = *DrawSecret();
  DeviceThatMayFail device_{*MakeDevice({.threads = 1})};
  std::unique_ptr<WorkerState> state_;
  std::optional<WorkerService> service_;
  GrpcEndpoint endpoint_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
};

void ExpectRefused(const absl::Status& status) {
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "JOIN_TOKEN");
}

TEST_F(WorkerServiceTest, TakesCallsOfItsCoordinatorAlone) {
  Start(milliseconds(60'000));
  ExpectRefused(OpenAndSendNothing(secret_));  // it is not registered
  state_->secret.Set(secret_);
  for (const std::string& stranger : {std::string(), *DrawSecret()}) {
    ExpectRefused(OpenAndSendNothing(stranger));
    v1::GreetResponse greeted;
    ExpectRefused(wire::FromGrpc(stub_->Greet(Context(stranger, "Greet").get(), {}, &greeted)));
    v1::PrepareRingResponse prepared;
    ExpectRefused(
        wire::FromGrpc(stub_->PrepareRing(Context(stranger, "PrepareRing").get(), {}, &prepared)));
    v1::ConnectRingResponse connected;
    ExpectRefused(
        wire::FromGrpc(stub_->ConnectRing(Context(stranger, "ConnectRing").get(), {}, &connected)));
    v1::CloseRingResponse closed;
    ExpectRefused(
        wire::FromGrpc(stub_->CloseRing(Context(stranger, "CloseRing").get(), {}, &closed)));
  }
  v1::GreetResponse greeted;
  EXPECT_TRUE(stub_->Greet(Context(secret_, "Greet").get(), {}, &greeted).ok());
  v1::CloseRingResponse closed;
  EXPECT_TRUE(stub_->CloseRing(Context(secret_, "CloseRing").get(), {}, &closed).ok());
  EXPECT_EQ(state_->memory.used(), 0);
  state_->secret.Set("");  // registers anew
  ExpectRefused(OpenAndSendNothing(secret_));
}

// An unauthenticated call does not hold a thread until a message comes.
TEST_F(WorkerServiceTest, AnUnauthenticatedRunEndsBeforeItsFirstMessage) {
  Start(milliseconds(60'000));
  const auto context = Context("", "Run");
  const auto run = stub_->Run(context.get());
  v1::RunResponse response;
  EXPECT_FALSE(run->Read(&response));
  ExpectRefused(wire::FromGrpc(run->Finish()));
}

TEST_F(WorkerServiceTest, AGreetingMayComeBeforeTheSecret) {
  Start(milliseconds(60'000));
  std::jthread teller([&] {
    std::this_thread::sleep_for(milliseconds(50));
    state_->secret.Set(secret_);
  });
  v1::GreetResponse greeted;
  EXPECT_TRUE(stub_->Greet(Context(secret_, "Greet").get(), {}, &greeted).ok());
}

TEST_F(WorkerServiceTest, ARunWithoutFeedEnds) {
  Start(milliseconds(300));
  state_->secret.Set(secret_);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(absl::IsCancelled(OpenAndSendNothing(secret_)));
  const auto seconds = std::chrono::steady_clock::now() - start;
  EXPECT_GE(seconds, milliseconds(300));
  EXPECT_LT(seconds, kAnswerLimit);
  while (state_->calls.count() > 0) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(state_->memory.used(), 0);
  EXPECT_NE(state_->lanes.front().AwaitTurn(kAnswerLimit), nullptr) << "the next job has its turn";
}

TEST_F(WorkerServiceTest, AFailedRunWithoutFeedEnds) {
  Start(milliseconds(2'000));
  state_->secret.Set(secret_);
  device_.fails = true;
  const JobSpec spec =
      PlainSpec({.tokens = 32'768, .heads = 1, .dim = 8, .segment = 64});  // several stretches
  const auto context = Context(secret_, "Run");
  const auto run = stub_->Run(context.get());
  ASSERT_TRUE(run->Write(OpenOf(spec)));
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    ASSERT_TRUE(run->Write(Rows(spec, tensor, spec.tokens / 2)));
  }
  v1::RunResponse response;
  bool failed = false;
  while (run->Read(&response)) failed = failed || response.has_failed();
  EXPECT_TRUE(failed);
  const absl::Status status = wire::FromGrpc(run->Finish());
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_NE(state_->lanes.front().AwaitTurn(kAnswerLimit), nullptr) << "the next job has its turn";
}

TEST_F(WorkerServiceTest, AShortRunWithoutFeedEnds) {
  Start(milliseconds(300), true);
  state_->secret.Set(secret_);
  const auto memory = SharedMemory::Create(ShardLayout(*MakePlan(PlainSpec(), 1), 0).bytes());
  ASSERT_TRUE(memory.ok()) << memory.status();
  v1::RunRequest open = OpenOf(PlainSpec());
  *open.mutable_open()->mutable_shared_memory() = (*memory)->offer();
  EXPECT_TRUE(absl::IsCancelled(OpenAndSendNothing(secret_, open)));
  EXPECT_EQ(state_->threads.count(), 0);
  EXPECT_NE(state_->lanes.front().AwaitTurn(kAnswerLimit), nullptr) << "the next job has its turn";
}

TEST_F(WorkerServiceTest, RunsOnSeveralLanesRunAtOnce) {
  Start(milliseconds(60'000));
  state_->secret.Set(secret_);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::RunRequest, v1::RunResponse>>> runs;
  for (int lane = 0; lane < kLanes; ++lane) {
    v1::RunRequest open = OpenOf(PlainSpec());
    open.mutable_open()->set_lane(lane);
    runs.push_back(stub_->Run(contexts.emplace_back(Context(secret_, "Run")).get()));
    ASSERT_TRUE(runs.back()->Write(open));
    v1::RunResponse response;
    ASSERT_TRUE(runs.back()->Read(&response)) << "no run waits for another";
    EXPECT_TRUE(response.has_ready());
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    contexts[i]->TryCancel();
    runs[i]->Finish();
  }
}

// Rows may go to other workers alone for longer than the feed timeout.
TEST_F(WorkerServiceTest, WordOfRowsElsewhereKeepsARunAlive) {
  Start(milliseconds(2'000));
  state_->secret.Set(secret_);
  const auto context = Context(secret_, "Run");
  const auto run = stub_->Run(context.get());
  ASSERT_TRUE(run->Write(OpenOf(PlainSpec())));
  v1::RunRequest elsewhere;
  elsewhere.mutable_elsewhere();
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(run->Write(elsewhere)) << i;
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(state_->calls.count(), 1);
  context->TryCancel();
  run->Finish();
}

}  // namespace
}  // namespace hilbert_ring::server
