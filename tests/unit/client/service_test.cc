#include "client/cpp/service.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/internal/sysinfo.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/manual_timing.h"
#include "tests/unit/client/test_files.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FakeBehaviour RefusesPlans(int plans, std::optional<std::string> retry_after) {
  return {.refuse = wire::ToGrpc(wire::WithReason(
              absl::ResourceExhaustedError("2 plans are being made"), "TOO_MANY_CALLS")),
          .retry_after = std::move(retry_after),
          .refused_plans = plans};
}

// Abseil's first call measures the clock, which changes errno. It must not come between gRPC's
// connect and its read of errno.
TEST(ServiceDeathTest, ErrnoIsLeftAloneOnceThereIsAChannel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process without channels
  const auto look = [] {
    const auto channel = Connect("127.0.0.1:1");
    errno = 0;
    absl::base_internal::NominalCPUFrequency();
    std::_Exit(errno);
  };
  EXPECT_EXIT(look(), ::testing::ExitedWithCode(0), "");
}

TEST(Service, AnAddressThatIsNoneIsRefusedAtOnce) {
  const FakeService service;
  const std::string port = service.address().substr(service.address().rfind(':') + 1);
  for (const std::string& server :
       {absl::StrCat("localhost:", std::stoi(port) + 65536), std::string("localhost")}) {
    const absl::Time begun = absl::Now();
    EchoJob job;
    for (const absl::Status& status :
         {RequestCluster(Connect(server)).status(), RequestModels(Connect(server)).status(),
          RequestPlan(ConnectForStream(server), job.spec_, 1).status(),
          client::Attend(server, job.inputs(), job.outputs()).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("server: \"", server, "\" has ")));
    }
    EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
  }
}

TEST(Service, APlanThatIsPushedBackIsAskedForAgain) {
  const FakeService service(RefusesPlans(2, "400"));
  ManualTiming timing;
  std::vector<int> attempts;
  const auto plan = RequestPlan(Connect(service.address()), EchoJob().spec_, 3,
                                {.retry =
                                     [&](const CallRetry& retry) {
                                       EXPECT_EQ(wire::ReasonOf(retry.failure), "TOO_MANY_CALLS");
                                       attempts.push_back(retry.attempt);
                                     },
                                 .timing = timing.timing()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->workers_size(), 3);
  EXPECT_EQ(service.plans(), 3);
  EXPECT_THAT(attempts, ElementsAre(2, 3));
  // The retry_after and an eighth more: half of a quarter.
  EXPECT_THAT(timing.slept, ElementsAre(absl::Milliseconds(450), absl::Milliseconds(450)));
}

int OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// Calls end before, during or after the making of their connection. gRPC's threads may open some
// descriptors, but fewer than one a call.
TEST(Service, CallsThatEndEarlyLeaveNoConnectionOpen) {
  const FakeService service;
  ASSERT_TRUE(
      RequestCluster(Connect(service.address())).ok());  // opens descriptors that the process keeps
  const int before = OpenDescriptors();
  std::vector<std::thread> callers(4);
  for (std::thread& caller : callers) {
    caller = std::thread([&service] {
      for (int i = 0; i < 250; ++i) {
        const auto channel = Connect(service.address());
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(8 * i));
        v1::ListJobsResponse jobs;
        v1::AttentionService::NewStub(channel)->ListJobs(&context, {}, &jobs);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (OpenDescriptors() > before + 30 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(OpenDescriptors(), before + 30);
}

}  // namespace
}  // namespace hilbert_ring::client
