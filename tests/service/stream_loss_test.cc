#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/engine/expected_rows.h"
#include "tests/service/raw_stream.h"
#include "tests/service/stream_call.h"
#include "tests/support/await.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;

TEST(StreamLoss, AWorkerMayBeLost) {
  const std::vector<std::vector<std::string>> cases = {
      {}, {"--share-memory=false", "--copy-memory=1"}};  // rows are read again from the stream's
  for (const std::vector<std::string>& arguments : cases) {
    const auto cluster = Cluster::Start({.workers = 2, .arguments = arguments}).value();
    JobSpec job = PlainSpec({.tokens = 5000, .segment = 64});
    const EngineInputs inputs = RandomInputs(job, 3);
    int epochs = 0;
    const auto streamed =
        AttendInStream(*cluster, job, StreamOf(job), inputs,
                       {.epoch_tokens = 512, .block_rows = 300, .epoch = [&](const v1::Epoch&) {
                          if (++epochs == 3) kill(cluster->Workers().front(), SIGKILL);
                        }});
    ASSERT_TRUE(streamed.ok()) << streamed.status();
    EXPECT_EQ(streamed->report.epochs(), 10);
    const auto expected = ExpectRows(job, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(Mismatch(job, streamed->result, *expected), "");
  }
}

// An epoch without a worker is tried when members come or go, not repeatedly.
TEST(StreamLoss, AnEpochWaitsForAWorkerWithoutJobs) {
  const auto cluster = Cluster::Start({.workers = 1, .place = WorkerPlace::kBeside}).value();
  auto stub = cluster->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
  kill(cluster->Workers().front(), SIGKILL);
  ASSERT_TRUE(Await([&] {
    const auto described = cluster->Describe();
    return described.ok() && described->workers().empty();
  }));
  ASSERT_TRUE(call.SendAll(0, 128));
  std::this_thread::sleep_for(seconds(2));
  const auto failed = cluster->Metric("hilbert_ring_jobs_total{code=\"UNAVAILABLE\"}");
  EXPECT_THAT(failed.value_or(-1), AnyOf(1, 2)) << failed.status();
  ASSERT_TRUE(cluster->StartEnded().ok());
  call.WritesDone();
  const auto report = call.Report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), 128);
}

TEST(StreamLoss, ItIsListedAndCancelledAsAJob) {
  const auto cluster = Cluster::Start({.workers = 1}).value();
  auto stub = cluster->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
  ASSERT_TRUE(call.SendAll(0, 128) && call.SendAll(128, 128) && call.SendAll(256, 50));
  v1::AttendResponse response;
  std::vector<int64_t> epochs;
  while (epochs.size() < 2 && call.Read(&response)) {
    if (response.has_epoch()) epochs.push_back(response.epoch().first_token());
  }
  EXPECT_EQ(epochs, (std::vector<int64_t>{0, 128}));
  const std::vector<v1::Job> jobs = Jobs(*stub);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].job_id(), "stream");
  EXPECT_EQ(jobs[0].epochs(), 2);
  EXPECT_EQ(jobs[0].tokens(), 256);
  EXPECT_TRUE(Await([&] { return Jobs(*stub).at(0).state() == v1::Job::STATE_RECEIVING; }));
  RawStream again(*stub);
  again.OpenEpochs(128);
  EXPECT_EQ(wire::ReasonOf(again.Finish()), "JOB_RUNNING");
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_job_id("stream");
  v1::CancelJobResponse cancelled;
  EXPECT_TRUE(stub->CancelJob(&context, request, &cancelled).ok());
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "CANCELLED_BY_CALLER");
  ExpectFree(*cluster);
  EXPECT_EQ(cluster->Metric("hilbert_ring_tokens_total").value_or(-1), 256 + 1000);
}

TEST(StreamLoss, ACoordinatorThatStopsEndsItSoon) {
  const auto cluster = Cluster::Start({.workers = 1, .arguments = {"--exit-timeout=0.2"}}).value();
  auto stub = cluster->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted() && call.SendAll(0, 100));
  EXPECT_TRUE(cluster->Stop().ok());
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "DRAINING");
}

}  // namespace
}  // namespace hilbert_ring::testing
