#include <signal.h>

#include <algorithm>
#include <thread>

#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"

namespace hilbert_ring::testing {
namespace {

void SendAll(RawCall& call, const JobSpec& spec) {
  for (const auto& [tensor, data] : EncodeTensors(spec, RandomInputs(spec, 1))) {
    for (int64_t first = 0; first < spec.tokens; first += 20'000) {
      const int64_t rows = std::min<int64_t>(20'000, spec.tokens - first);
      ASSERT_TRUE(call.Send(MakeChunk(tensor, data, 2 * 16 * 4, first, rows)));
    }
  }
  call.WritesDone();
}

// A worker computes as many jobs at once as it has threads; the next one waits.
TEST(Schedule, SmallJobsAreComputedAtOnceAndAFullQueueIsRefused) {
  const auto cluster =
      Cluster::Start({.workers = 1, .arguments = {"--worker-threads=4", "--max-queue=1"}}).value();
  const auto stub = cluster->Stub();
  std::vector<std::unique_ptr<RawCall>> running;
  for (int i = 0; i < 4; ++i) {
    running.push_back(std::make_unique<RawCall>(*stub, std::chrono::seconds(30)));
    ASSERT_TRUE(running.back()->Open(PlainSpec()) && running.back()->AwaitAdmitted()) << i;
  }
  RawCall waiting(*stub, std::chrono::seconds(30)), refused(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(waiting.Open(PlainSpec()));
  v1::AttendResponse response;
  ASSERT_TRUE(waiting.Read(&response));
  EXPECT_TRUE(response.has_queued());
  refused.Open(PlainSpec());
  EXPECT_TRUE(absl::IsResourceExhausted(refused.Finish()));
  EXPECT_TRUE(refused.retry_after_ms().has_value());
  running.pop_back();
  EXPECT_TRUE(waiting.AwaitAdmitted());
}

TEST(Schedule, AWorkerThatDrainsEndsItsJobAndTakesNoOther) {
  const auto cluster = Cluster::Start({.workers = 2, .spread = false}).value();
  const auto stub = cluster->Stub();
  const JobSpec spec = PlainSpec();
  RawCall first(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(first.Open(spec) && first.AwaitAdmitted());
  // The worker with the job lives on; the other one ends.
  const std::vector<pid_t> pids = cluster->Workers();
  const auto alive = [&] { return IsAlive(pids[0]) + IsAlive(pids[1]); };
  for (const pid_t pid : pids) kill(pid, SIGTERM);
  EXPECT_TRUE(Await([&] { return alive() < 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(alive(), 1);
  EXPECT_TRUE(Await([&] {
    const auto described = cluster->Describe().value();
    return std::any_of(described.workers().begin(), described.workers().end(),
                       [](const auto& w) { return w.state() == v1::ClusterWorker::STATE_UP; });
  }));
  const auto other = AttendRaw(*stub, spec, RandomInputs(spec, 2), 64, 1);
  EXPECT_TRUE(other.ok()) << other.status();
  SendAll(first, spec);
  const auto result = first.Collect(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.retries(), 0);
  EXPECT_TRUE(Await([&] { return alive() == 0; }));
}

}  // namespace
}  // namespace hilbert_ring::testing
