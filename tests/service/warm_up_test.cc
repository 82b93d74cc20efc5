// A worker that fails every job does not keep the service from being ready with the others.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/await.h"
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

  void Start(const std::vector<std::string>& arguments) {
    auto program = Program::Start({.arguments = arguments, .log = folder_ / "log"});
    ASSERT_TRUE(program.ok()) << program.status();
    programs_.push_back(*std::move(program));
  }

  void StartWorker(int port, const char* memory_limit) {
    Start({HILBERT_RING_WORKER_BINARY, absl::StrCat("--port=", port), "--http-port=0",
           "--threads=1", absl::StrCat("--memory-limit=", memory_limit),
           absl::StrCat("--coordinator=127.0.0.1:", membership_port_)});
  }

  HttpAnswer Readyz() const {
    return HttpGet({.port = http_port_, .path = "/readyz"}).value_or(HttpAnswer{});
  }

  bool AwaitReadyz(int status, const ::testing::Matcher<const std::string&>& body) const {
    return Await([&] {
      const HttpAnswer now = Readyz();
      return now.status == status && body.Matches(now.body);
    });
  }

  const TestFolder folder_;
  const int grpc_port_ = FreePort(), http_port_ = FreePort(), membership_port_ = FreePort();
  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(WarmUp, AWorkerThatFailsItIsNamedAndHoldsNobodyUp) {
  Start({HILBERT_RING_COORDINATOR_BINARY, "--spawn-workers=0", "--min-workers=2",
         absl::StrCat("--grpc-port=", grpc_port_), absl::StrCat("--http-port=", http_port_),
         absl::StrCat("--membership-port=", membership_port_)});
  const int bad_port = FreePort();
  StartWorker(bad_port, "1MiB");
  StartWorker(FreePort(), "256MiB");
  // Too few pass: the service says which worker failed, and why.
  const std::string named = absl::StrCat("worker 127.0.0.1:", bad_port, " failed its warm-up ");
  EXPECT_TRUE(AwaitReadyz(503, StartsWith("warming up\n" + named))) << Readyz().body;
  EXPECT_THAT(Readyz().body, HasSubstr("memory limit"));
  StartWorker(FreePort(), "256MiB");
  EXPECT_TRUE(AwaitReadyz(200, StartsWith("ok\n" + named))) << Readyz().body;
  const JobSpec spec = PlainSpec();
  const auto stub = v1::AttentionService::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", grpc_port_), grpc::InsecureChannelCredentials()));
  const auto result = AttendRaw(*stub, spec, RandomInputs(spec, 1), 32, 1);
  EXPECT_TRUE(result.ok()) << result.status();
}

}  // namespace
}  // namespace hilbert_ring::testing
