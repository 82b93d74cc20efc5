// Several jobs at once: side by side, beside a long one, and while a worker drains.
#include <signal.h>

#include <algorithm>
#include <set>
#include <thread>

#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
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

v1::GetClusterResponse ClusterOf(v1::AttentionService::Stub& stub) {
  grpc::ClientContext context;
  v1::GetClusterResponse response;
  EXPECT_TRUE(stub.GetCluster(&context, {}, &response).ok());
  return response;
}

std::multiset<std::string> JobsOfWorkers(v1::AttentionService::Stub& stub) {
  const v1::GetClusterResponse cluster = ClusterOf(stub);
  std::multiset<std::string> jobs;
  for (const v1::ClusterWorker& worker : cluster.workers()) jobs.insert(worker.job_id());
  return jobs;
}

int WorkersUp(v1::AttentionService::Stub& stub) {
  const v1::GetClusterResponse cluster = ClusterOf(stub);
  return static_cast<int>(
      std::count_if(cluster.workers().begin(), cluster.workers().end(),
                    [](const auto& w) { return w.state() == v1::ClusterWorker::STATE_UP; }));
}

TEST(Schedule, SmallJobsRunSideBySide) {
  auto cluster = Cluster::Start({.workers = 2, .spread = false});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec();
  RawCall first(*stub, std::chrono::seconds(30)), second(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(first.Open(spec) && first.AwaitAdmitted());
  ASSERT_TRUE(second.Open(spec) && second.AwaitAdmitted());
  // Each has a worker of its own.
  EXPECT_EQ(JobsOfWorkers(*stub).count(""), 0u);
  SendAll(second, spec);
  const auto of_second = second.Collect(spec);
  ASSERT_TRUE(of_second.ok()) << of_second.status();
  EXPECT_EQ(of_second->report.workers_size(), 1);
  SendAll(first, spec);
  EXPECT_TRUE(first.Collect(spec).ok());
}

TEST(Schedule, ALargeJobGetsAllWorkers) {
  auto cluster = Cluster::Start({.workers = 2, .spread = false});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec({.tokens = 10'000});
  const auto result = AttendRaw(*stub, spec, RandomInputs(spec, 1), 5000, 1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.workers_size(), 2);
}

TEST(Schedule, AShortJobDoesNotWaitForALongOne) {
  auto cluster = Cluster::Start({.workers = 2, .spread = false});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec({.tokens = 80'000});
  RawCall large(*stub, std::chrono::seconds(120));
  ASSERT_TRUE(large.Open(spec) && large.AwaitAdmitted());
  SendAll(large, spec);
  const JobSpec small = PlainSpec({.tokens = 128});
  for (int i = 0; i < 3; ++i) {
    const auto result = AttendRaw(*stub, small, RandomInputs(small, i), 50, 1);
    ASSERT_TRUE(result.ok()) << result.status();
    // The large one is still at it, on both workers.
    EXPECT_EQ(JobsOfWorkers(*stub).count(""), 0u);
  }
  large.Cancel();
  EXPECT_TRUE(absl::IsCancelled(large.Finish()));
}

TEST(Schedule, AWorkerThatDrainsEndsItsJobAndTakesNoOther) {
  auto cluster = Cluster::Start({.workers = 2, .spread = false});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec();
  RawCall first(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(first.Open(spec) && first.AwaitAdmitted());
  // Whichever of them has the job: it lives on, the other ends.
  const std::vector<pid_t> pids = (*cluster)->Workers();
  for (const pid_t pid : pids) kill(pid, SIGTERM);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (IsAlive(pids[0]) && IsAlive(pids[1]) && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(IsAlive(pids[0]) + IsAlive(pids[1]), 1);
  // On a new worker, once it is there.
  const auto replaced = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (WorkersUp(*stub) == 0 && std::chrono::steady_clock::now() < replaced) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto other = AttendRaw(*stub, spec, RandomInputs(spec, 2), 64, 1);
  EXPECT_TRUE(other.ok()) << other.status();
  SendAll(first, spec);
  const auto result = first.Collect(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.retries(), 0);
  const auto ended = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((IsAlive(pids[0]) || IsAlive(pids[1])) && std::chrono::steady_clock::now() < ended) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(IsAlive(pids[0]) || IsAlive(pids[1]));
}

}  // namespace
}  // namespace hilbert_ring::testing
