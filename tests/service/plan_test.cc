#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Its plan takes seconds of a processor and 200 MiB.
JobSpec ManySequences() {
  JobSpec spec = PlainSpec();
  constexpr int64_t kSequences = 1'000'000;
  spec.tokens = 2 * kSequences;
  spec.sequence_lengths.assign(kSequences, 2);
  spec.heads = spec.kv_heads = 64;
  spec.head_dim = spec.value_dim = 8;
  spec.branches = {{64, 1}, {128, 2}, {256, 4}, {512, 8}};
  spec.mixing = Mixing::kLse;
  return spec;
}

grpc::Status RequestPlan(v1::AttentionService::Stub& stub, grpc::ClientContext& context,
                         const JobSpec& spec) {
  v1::PlanRequest request;
  *request.mutable_spec() = wire::EncodeJobSpec(spec);
  request.set_workers(8);
  v1::PlanResponse response;
  return stub.Plan(&context, request, &response);
}

double ProcessorSeconds(pid_t pid) {
  const std::string stat = FileText(absl::StrCat("/proc/", pid, "/stat"));
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')') + 2), ' ');
  const double ticks = std::stod(fields.at(11)) + std::stod(fields.at(12));  // utime, stime
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

TEST(Plans, AreBoundedAndEndWithTheirCaller) {
  const auto cluster = Cluster::Start({.workers = 1}).value();
  auto stub = cluster->Stub();
  constexpr int kCallers = 4;  // two plans are made at once, and one caller waits
  std::vector<grpc::ClientContext> contexts(kCallers);
  std::atomic<int> refused = 0, ended = 0;
  {
    std::vector<std::jthread> callers;
    callers.reserve(contexts.size());
    for (grpc::ClientContext& context : contexts) {
      callers.emplace_back([&] {
        const grpc::Status status = RequestPlan(*stub, context, ManySequences());
        ++ended;
        if (wire::ReasonOf(wire::FromGrpc(status)) != "TOO_MANY_CALLS") return;
        EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
        EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
        ++refused;
      });
    }
    while (ended < kCallers - 2) std::this_thread::sleep_for(milliseconds(1));
    grpc::ClientContext context;
    EXPECT_TRUE(RequestPlan(*stub, context, PlainSpec()).ok());
    for (grpc::ClientContext& left : contexts) left.TryCancel();
  }
  EXPECT_GE(refused, 1);
  // The cancelled caller's place is free: the next plan runs until its own deadline.
  const auto limit = std::chrono::steady_clock::now() + seconds(20);
  std::string reason = "TOO_MANY_CALLS";
  while (reason == "TOO_MANY_CALLS" && std::chrono::steady_clock::now() < limit) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    const grpc::Status status = RequestPlan(*stub, context, ManySequences());
    reason = status.ok() ? "OK" : wire::ReasonOf(wire::FromGrpc(status));
  }
  EXPECT_NE(reason, "TOO_MANY_CALLS");
}

TEST(Plans, PredictSecondsFromTheRatesOfJobsBefore) {
  const auto cluster = Cluster::Start({.workers = 2}).value();
  const auto stub = cluster->Stub();
  const auto plan = [&](int64_t tokens) {
    v1::PlanRequest request;
    *request.mutable_spec() =
        wire::EncodeJobSpec(PlainSpec({.tokens = tokens, .heads = 4, .dim = 64}));
    v1::PlanResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(stub->Plan(&context, request, &response).ok());
    return response;
  };
  EXPECT_EQ(plan(8192).seconds(), 0);
  EXPECT_THAT(plan(8192).seconds_basis(), HasSubstr("no worker has been measured"));
  const JobSpec spec = PlainSpec({.tokens = 8192, .heads = 4, .dim = 64});
  const auto job = AttendRaw(*stub, spec, RandomInputs(spec, 1), 1024, 1);
  ASSERT_TRUE(job.ok()) << job.status();
  double slowest = 0;
  for (const v1::WorkerReport& worker : job->report.workers()) {
    slowest = std::max(slowest, worker.compute_seconds());
  }
  // The same job takes as long as its slowest worker, plus the time outside compute.
  const double predicted = plan(8192).seconds();
  EXPECT_GT(predicted, 0.5 * slowest);
  EXPECT_LT(predicted, 2 * slowest + 0.5);
  // Four times the tokens are sixteen times the work.
  EXPECT_GT(plan(4 * 8192).seconds(), 8 * predicted);
  EXPECT_LT(plan(4 * 8192).seconds(), 20 * predicted);
}

TEST(Plans, AreNotMadeForJobsThatFindTheQueueFull) {
  const auto cluster =
      Cluster::Start({.workers = 1, .arguments = {"--max-queue=0"}, .spread = false}).value();
  auto stub = cluster->Stub();
  RawCall running(*stub, seconds(60));
  ASSERT_TRUE(running.Open(PlainSpec()) && running.AwaitAdmitted());
  const double before = ProcessorSeconds(cluster->coordinator());
  constexpr int kJobs = 4;
  for (int i = 0; i < kJobs; ++i) {
    RawCall refused(*stub, seconds(60));
    refused.Open(ManySequences());
    const absl::Status status = refused.Finish();
    EXPECT_EQ(wire::ReasonOf(status), "QUEUE_FULL") << status;
  }
  const double seconds_each = (ProcessorSeconds(cluster->coordinator()) - before) / kJobs;
  RecordProperty("processor_seconds_each", std::to_string(seconds_each));
  EXPECT_LT(seconds_each, 0.2);
}

}  // namespace
}  // namespace hilbert_ring::testing
