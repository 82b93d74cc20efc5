#include <algorithm>
#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTokens = 60'000;  // seconds of compute

v1::ListJobsResponse List(v1::AttentionService::Stub& stub) {
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  const grpc::Status status = stub.ListJobs(&context, {}, &jobs);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return jobs;
}

absl::Status Cancel(v1::AttentionService::Stub& stub, const std::string& job_id) {
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  v1::CancelJobResponse response;
  return wire::FromGrpc(stub.CancelJob(&context, request, &response));
}

void Compute(RawCall& call, const JobSpec& spec) {
  constexpr int64_t kRows = 20'000;
  const EngineInputs inputs = RandomInputs(spec, 1);
  for (const auto& [tensor, data] : EncodeTensors(spec, inputs)) {
    for (int64_t first = 0; first < spec.tokens; first += kRows) {
      ASSERT_TRUE(call.Send(MakeChunk(tensor, data, 2 * 16 * 4, first, kRows)));
    }
  }
  call.WritesDone();
  v1::AttendResponse response;
  while (response.progress().phase() != v1::Progress::PHASE_COMPUTE) {
    ASSERT_TRUE(call.Read(&response));
  }
}

TEST(OwnJobs, ARunningJobIsListedAndCancelled) {
  const auto cluster = Cluster::Start({.workers = 2}).value();
  const auto stub = cluster->Stub();
  EXPECT_TRUE(List(*stub).jobs().empty());
  const JobSpec spec = PlainSpec({.tokens = kTokens});
  RawCall call(*stub, std::chrono::seconds(120));
  ASSERT_TRUE(call.Open(spec) && call.AwaitAdmitted());
  Compute(call, spec);
  ASSERT_FALSE(HasFatalFailure());

  const v1::ListJobsResponse jobs = List(*stub);
  ASSERT_EQ(jobs.jobs_size(), 1);
  const v1::Job& job = jobs.jobs(0);
  EXPECT_EQ(job.state(), v1::Job::STATE_COMPUTING);
  EXPECT_EQ(job.tokens(), kTokens);
  EXPECT_EQ(job.workers(), 2);
  EXPECT_GT(job.seconds(), 0);
  EXPECT_GT(job.fraction(), 0);
  EXPECT_LT(job.fraction(), 1);

  const absl::Status cancelled = Cancel(*stub, job.job_id());
  ASSERT_TRUE(cancelled.ok()) << cancelled;
  const absl::Status status = call.Finish();
  EXPECT_EQ(wire::ReasonOf(status), "CANCELLED_BY_CALLER") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1"));
  // Heartbeats report the freed memory.
  EXPECT_TRUE(Await(
      [&] {
        const auto described = cluster->Describe().value();
        return std::ranges::all_of(described.workers(), [](const v1::ClusterWorker& worker) {
          return worker.memory_used_bytes() == 0;
        });
      },
      std::chrono::seconds(3)));
  EXPECT_TRUE(List(*stub).jobs().empty());
  EXPECT_EQ(wire::ReasonOf(Cancel(*stub, job.job_id())), "JOB_NOT_FOUND") << "it has ended";
}

}  // namespace
}  // namespace hilbert_ring::testing
