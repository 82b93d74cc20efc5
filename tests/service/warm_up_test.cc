// A worker that fails every job does not keep the service from being ready with the others.
#include <chrono>
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
  void StartCoordinator(int min_workers) {
    Start({HILBERT_RING_COORDINATOR_BINARY, "--spawn-workers=0",
           absl::StrCat("--min-workers=", min_workers), absl::StrCat("--grpc-port=", grpc_port_),
           absl::StrCat("--http-port=", http_port_),
           absl::StrCat("--membership-port=", membership_port_)});
  }

  void StartWorker(int port, const char* memory_limit) {
    Start({HILBERT_RING_WORKER_BINARY, absl::StrCat("--port=", port), "--http-port=0",
           "--threads=1", absl::StrCat("--memory-limit=", memory_limit),
           absl::StrCat("--coordinator=127.0.0.1:", membership_port_)});
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

  const int grpc_port_ = FreePort(), http_port_ = FreePort(), membership_port_ = FreePort();
  const int bad_port_ = FreePort(), good_port_ = FreePort();
  const std::string named_ = absl::StrCat("worker 127.0.0.1:", bad_port_, " failed its warm-up ");

 private:
  void Start(const std::vector<std::string>& arguments) {
    auto program = Program::Start({.arguments = arguments, .log = folder_ / "log"});
    ASSERT_TRUE(program.ok()) << program.status();
    programs_.push_back(*std::move(program));
  }

  TestFolder folder_;
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
  const auto stub = v1::AttentionService::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", grpc_port_), grpc::InsecureChannelCredentials()));
  const JobSpec spec = PlainSpec();
  const auto result = AttendRaw(*stub, spec, RandomInputs(spec, 1), 32, 1);
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

}  // namespace
}  // namespace hilbert_ring::testing
