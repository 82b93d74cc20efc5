// Calls where the system has no thread left: they end with an error, and the process goes on.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/attend_many.h"
#include "client/cpp/attend_stream.h"
#include "client/cpp/job_files.h"
#include "client/cpp/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/few_threads.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_folder.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/fake_small_jobs.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

void ExpectNoThreads(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(wire::ReasonOf(status), "NO_THREADS");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no thread can be started"));
}

class NoThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kAddressSanitizer || kThreadSanitizer) {
      GTEST_SKIP() << "the sanitizer has its own pthread_create, which must come first";
    }
    // gRPC has its threads, and the channel its connection.
    ASSERT_TRUE(Attend(0, {}).ok());
  }

  absl::StatusOr<v1::Report> Attend(int64_t tokens, const JobOptions& options) {
    EchoJob job(tokens > 0 ? tokens : 50);
    return client::Attend(channel_, job.inputs(), job.outputs(), options);
  }

  FakeService service_;
  std::shared_ptr<grpc::Channel> channel_ = Connect(service_.address());
};

constexpr int64_t kLong = 1 << 14;  // tokens of a job that is sent by a thread of its own

TEST_F(NoThreads, OfAJobsSenderIsAnError) {
  {
    const FewThreads none(0);
    ExpectNoThreads(Attend(kLong, {}).status());
  }
  EXPECT_TRUE(Attend(kLong, {}).ok());
}

TEST_F(NoThreads, OfWhoWatchesForACancellationIsAnError) {
  const JobOptions cancellable{.cancelled = [] { return false; }};
  {
    const FewThreads none(0);
    ExpectNoThreads(Attend(50, cancellable).status());
  }
  {
    const FewThreads one(1);
    ExpectNoThreads(Attend(kLong, cancellable).status());
  }
  EXPECT_TRUE(Attend(kLong, cancellable).ok());
}

TEST_F(NoThreads, OfAResendIsAnError) {
  v1::Resend resend;
  resend.set_tensor(v1::TENSOR_Q);
  resend.set_attempt(0);
  v1::Resend::Range& range = *resend.add_ranges();
  range.set_rows(10);
  const FakeService service({.resends = {resend}, .resend_after_chunks = 2});
  const auto channel = Connect(service.address());
  EchoJob job;
  {
    const FewThreads none(0);
    ExpectNoThreads(client::Attend(channel, job.inputs(), job.outputs(), {}).status());
  }
}

TEST_F(NoThreads, OfAStreamsSenderIsAnError) {
  const EchoJob job(16);
  AttendStreamCalls calls{.spec = job.spec_};
  calls.spec.tokens = 0;
  calls.next = [](const std::stop_token&) {
    return absl::StatusOr<std::optional<StreamBlock>>(std::nullopt);
  };
  calls.take = [](const StreamedRows&) { return absl::OkStatus(); };
  const FewThreads none(0);
  ExpectNoThreads(AttendStream(channel_, calls, {}).status());
}

TEST_F(NoThreads, OfManyJobsSenderIsAnErrorOfEach) {
  const FakeSmallJobs service([](int, int64_t) { return std::vector{absl::OkStatus()}; });
  std::vector<EchoJob> jobs = {EchoJob(10), EchoJob(11)};
  std::vector<SmallJob> small;
  small.reserve(jobs.size());
  for (EchoJob& job : jobs) {
    small.push_back({.inputs = job.inputs(), .outputs = {.out = job.out_}});
  }
  const auto channel = Connect(service.address());
  for (const auto& report : AttendMany(channel, small, {})) ASSERT_TRUE(report.ok());
  const FewThreads none(0);
  for (const auto& report : AttendMany(channel, small, {})) ExpectNoThreads(report.status());
}

TEST_F(NoThreads, OfAVerificationIsNoError) {
  const auto path = [](const char* name) { return GoldenPath("dense", name); };
  const Job job = ReadJob({.spec = path("case.json")}).value();
  const auto open = [&](const char* name, v1::Tensor tensor) {
    return OpenTensor(path(name), job.spec, tensor).value();
  };
  const NpyFile q = open("q.npy", v1::TENSOR_Q), k = open("k.npy", v1::TENSOR_K),
                v = open("v.npy", v1::TENSOR_V), out = open("out.npy", v1::TENSOR_OUT);
  const FewThreads one(1);
  const auto result =
      Verify({.spec = job.spec, .q = q, .k = k, .v = v, .out = out}, {.rows = 40, .threads = 8});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->ok());
  EXPECT_EQ(result->rows, 40);
}

// Loaded before its libraries: no thread from the start on.
TEST_F(NoThreads, OfTheCommandLineIsALineAndAnExitCode) {
  const testing::TestFolder folder;
  for (const std::string& command :
       {absl::StrCat("status --server ", service_.address()),
        absl::StrCat("attend --server ", service_.address(), GoldenInputs("dense"), " --out ",
                     folder / "out.npy")}) {
    const CliResult result = RunShell(absl::StrCat(
        "export LD_PRELOAD=", HILBERT_RING_FAILING_THREADS, " NO_THREADS_FOLDER=", folder.path(),
        "; timeout 60 sh -c ': > ", folder.path(), "/$$; exec $CLI ", command, "'"));
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("RESOURCE_EXHAUSTED: no thread can be started"));
    EXPECT_THAT(result.err, HasSubstr("(reason NO_THREADS)"));
    EXPECT_THAT(result.err, HasSubstr("ulimit -u"));
  }
}

}  // namespace
}  // namespace hilbert_ring::client
