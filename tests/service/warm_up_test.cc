// Neither a worker that fails every job nor one that has a caller's job keeps the service from
// being ready with the others.
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/free_port.h"
#include "tests/support/http_get.h"
#include "tests/support/plain_spec.h"
#include "tests/support/program.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A coordinator, and workers beside it.
class WarmUp : public ::testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure()) ADD_FAILURE() << FileText(folder_ / "log");
  }

  void StartCoordinator(int min_workers, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {HILBERT_RING_COORDINATOR_BINARY,
                                          "--spawn-workers=0",
                                          absl::StrCat("--min-workers=", min_workers),
                                          absl::StrCat("--grpc-port=", grpc_port_),
                                          absl::StrCat("--http-port=", http_port_),
                                          absl::StrCat("--membership-port=", membership_port_)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Start(arguments);
  }

  void StartWorker(int port, const char* memory_limit, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        HILBERT_RING_WORKER_BINARY,
        absl::StrCat("--port=", port),
        "--http-port=0",
        "--threads=1",
        absl::StrCat("--memory-limit=", memory_limit),
        absl::StrCat("--coordinator=127.0.0.1:", membership_port_)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Start(arguments);
  }

  HttpAnswer Readyz() const {
    return HttpGet({.port = http_port_, .path = "/readyz"}).value_or(HttpAnswer{});
  }

  template <typename Done>
  bool Within(const Done& done) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done(Readyz())) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

  int WorkersThatAreUp() const {
    grpc::ClientContext context;
    v1::GetClusterResponse cluster;
    if (!stub_->GetCluster(&context, {}, &cluster).ok()) return -1;
    return static_cast<int>(std::count_if(
        cluster.workers().begin(), cluster.workers().end(),
        [](const auto& worker) { return worker.state() == v1::ClusterWorker::STATE_UP; }));
  }

  // A job on the one worker that is there, until the call ends.
  std::unique_ptr<RawCall> BeginJob() {
    EXPECT_TRUE(Within(
        [this](const HttpAnswer& now) { return now.status == 503 && WorkersThatAreUp() == 1; }));
    auto call = std::make_unique<RawCall>(*stub_, std::chrono::minutes(5));
    EXPECT_TRUE(call->Open(PlainSpec()));
    EXPECT_TRUE(call->AwaitAdmitted());
    return call;
  }

  Program& first() { return *programs_.front(); }
  void KillAll() { programs_.clear(); }

  const TestFolder folder_;
  const int grpc_port_ = FreePort(), http_port_ = FreePort(), membership_port_ = FreePort();
  const int bad_port_ = FreePort(), good_port_ = FreePort();
  const std::unique_ptr<v1::AttentionService::Stub> stub_ =
      v1::AttentionService::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", grpc_port_),
                                                        grpc::InsecureChannelCredentials()));
  const std::string named_ = absl::StrCat("worker 127.0.0.1:", bad_port_, " failed its warm-up ");

 private:
  void Start(const std::vector<std::string>& arguments) {
    auto program = Program::Start({.arguments = arguments, .log = folder_ / "log"});
    ASSERT_TRUE(program.ok()) << program.status();
    programs_.push_back(*std::move(program));
  }

  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(WarmUp, AWorkerThatFailsItIsNamedAndHoldsNobodyUp) {
  StartCoordinator(1);
  StartWorker(bad_port_, "1MiB");
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.body == "warming up\n"; }));
  StartWorker(good_port_, "256MiB");
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.status == 200; })) << Readyz().body;
  EXPECT_THAT(Readyz().body, StartsWith(absl::StrCat("ok\n", named_, "3 times: ")));
  EXPECT_THAT(Readyz().body, HasSubstr("memory limit"));
  const JobSpec spec = PlainSpec();
  const auto result = AttendRaw(*stub_, spec, RandomInputs(spec, 1), 32, 1);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST_F(WarmUp, WhereTooFewPassTheServiceSaysWhichWorkersFailedAndWhy) {
  StartCoordinator(2);
  StartWorker(bad_port_, "1MiB");
  StartWorker(good_port_, "256MiB");
  EXPECT_TRUE(Within([this](const HttpAnswer& now) {
    return now.status == 503 && absl::StartsWith(now.body, "warming up\n" + named_);
  })) << Readyz().body;
  EXPECT_THAT(Readyz().body, HasSubstr("memory limit"));
  StartWorker(FreePort(), "256MiB");
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.status == 200; })) << Readyz().body;
}

TEST_F(WarmUp, WorkersThatAreFreeMakeTheServiceReadyWhileAnotherHasACallersJob) {
  StartCoordinator(2);
  StartWorker(FreePort(), "256MiB");
  const auto job = BeginJob();
  StartWorker(FreePort(), "256MiB");
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.body == "warming up\n"; }));
  StartWorker(FreePort(), "256MiB");
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.status == 200; })) << Readyz().body;
  EXPECT_EQ(Readyz().body, "ok\n");
}

TEST_F(WarmUp, AWorkerThatHasACallersJobIsNoneThatFails) {
  StartCoordinator(2, {"--max-queue=0"});
  StartWorker(FreePort(), "256MiB");
  auto job = BeginJob();
  StartWorker(FreePort(), "256MiB");
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.body == "warming up\n"; }));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < limit) {
    ASSERT_EQ(Readyz().body, "warming up\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  job.reset();
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.body == "ok\n"; })) << Readyz().body;
}

TEST_F(WarmUp, ADiskThatHangsDoesNotHangTheService) {
  const std::string ready_file = folder_ / "ready";
  StartCoordinator(1, {absl::StrCat("--ready-file=", ready_file)});
  // What is to be written waits for somebody to read it.
  const std::string draft = absl::StrCat(ready_file, ".", first().pid(), ".draft");
  ASSERT_EQ(mkfifo(draft.c_str(), 0600), 0);
  StartWorker(good_port_, "256MiB");
  auto ready = std::async(std::launch::async, [this] {
    return Within([](const HttpAnswer& now) { return now.status == 200; });
  });
  const bool answered = ready.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  EXPECT_TRUE(answered);
  if (!answered) KillAll();
  EXPECT_TRUE(ready.get());
  StartWorker(FreePort(), "256MiB");
  EXPECT_TRUE(Within([this](const HttpAnswer&) { return WorkersThatAreUp() == 2; }));
  first().Signal(SIGTERM);
  EXPECT_EQ(first().AwaitEnd(std::chrono::seconds(60)).value_or("it runs"), "exit status 0");
}

TEST_F(WarmUp, ADiskThatHangsDoesNotHangTheWorker) {
  const std::string ready_file = folder_ / "ready";
  StartWorker(good_port_, "256MiB", {absl::StrCat("--ready-file=", ready_file)});
  const std::string draft = absl::StrCat(ready_file, ".", first().pid(), ".draft");
  ASSERT_EQ(mkfifo(draft.c_str(), 0600), 0);
  StartCoordinator(1, {"--worker-timeout=1"});
  EXPECT_TRUE(Within([](const HttpAnswer& now) { return now.status == 200; }));
  std::this_thread::sleep_for(std::chrono::seconds(4));  // by then one that is not heard is lost
  EXPECT_TRUE(Within([this](const HttpAnswer&) { return WorkersThatAreUp() == 1; }));
  first().Signal(SIGTERM);
  EXPECT_EQ(first().AwaitEnd(std::chrono::seconds(60)).value_or("it runs"), "exit status 0");
}

}  // namespace
}  // namespace hilbert_ring::testing
