// The device of a worker errs: checksums are right, rows are not.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"
#include "tests/support/await.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

struct Sharing {
  const char* name;
  WorkerPlace place;
  const char* of_workers;

  friend void PrintTo(const Sharing& sharing, std::ostream* to) { *to << sharing.name; }
};

FaultJob CheckedJob() {
  std::mt19937_64 random(1);
  FaultJob job = MakeSmallJob(random).value();
  while (job.spec.tokens < 50 || job.spec.tokens > 1000) job = MakeSmallJob(random).value();
  return job;
}

JobEnd RunOnce(const Cluster& cluster, const FaultJob& job) {
  return RunJob(cluster.address(), job, {.deadline = absl::Seconds(60)});
}

void ExpectRightAndChecked(const Cluster& cluster, const FaultJob& job) {
  const JobEnd end = RunOnce(cluster, job);
  EXPECT_EQ(end.verdict, Verdict::kRight) << end.what << end.status;
  EXPECT_EQ(end.rows_checked, job.spec.tokens);
}

std::map<std::string, v1::ClusterWorker::State> States(const Cluster& cluster) {
  std::map<std::string, v1::ClusterWorker::State> states;
  const auto described = cluster.Describe().value();
  for (const v1::ClusterWorker& worker : described.workers()) {
    states[worker.address()] = worker.state();
  }
  return states;
}

int WorkersUp(const Cluster& cluster) {
  return static_cast<int>(std::ranges::count(States(cluster), v1::ClusterWorker::STATE_UP,
                                             [](const auto& worker) { return worker.second; }));
}

class WrongRows : public ::testing::TestWithParam<Sharing> {};

TEST_P(WrongRows, AreFoundAndTheirWorkerIsQuarantined) {
  const auto cluster =
      StartFaultCluster(
          {.workers = 2,
           .place = GetParam().place,
           .arguments = {"--check-rows=1000", "--job-workers=2"},
           .worker_arguments = {absl::StrCat("--share-memory=", GetParam().of_workers)},
           .last_worker = HILBERT_RING_WORKER_WrongScores})
          .value();
  const FaultJob job = CheckedJob();
  // Wrong rows in one job may be chance, in two jobs they are not.
  for (const int trusted : {2, 1}) {
    const JobEnd wrong = RunOnce(*cluster, job);
    EXPECT_EQ(wrong.reason, "ROW_MISMATCH") << wrong.status << wrong.what;
    EXPECT_THAT(std::string(wrong.status.message()), HasSubstr("token "));
    EXPECT_EQ(wrong.attempts, 1);
    EXPECT_EQ(WorkersUp(*cluster), trusted);
    for (const auto& [address, state] : States(*cluster)) {
      if (state == v1::ClusterWorker::STATE_UP) continue;
      EXPECT_EQ(state, v1::ClusterWorker::STATE_QUARANTINED);
      EXPECT_THAT(std::string(wrong.status.message()), HasSubstr(address));
    }
  }
  ExpectRightAndChecked(*cluster, job);

  kill(cluster->Workers().at(1), SIGKILL);
  EXPECT_TRUE(Await([&] {
    EXPECT_TRUE(cluster->StartEnded().ok());
    return States(*cluster).size() == 2 && WorkersUp(*cluster) == 2;
  }));
}

INSTANTIATE_TEST_SUITE_P(Workers, WrongRows,
                         ::testing::Values(Sharing{"Shared", WorkerPlace::kUnshared, "true"},
                                           Sharing{"Copied", WorkerPlace::kRemote, "false"}),
                         [](const auto& info) { return info.param.name; });

// The service's programs in their own folder: the first worker that starts errs, later ones do not.
class ProgramsWithOneFault {
 public:
  ProgramsWithOneFault() {
    std::error_code error;
    std::filesystem::copy_file(HILBERT_RING_COORDINATOR_BINARY, coordinator(), error);
    const std::string worker = folder_ / "hilbert-ring-worker";
    std::ofstream(worker) << "#!/bin/sh\n"
                          << "mkdir '" << folder_ / "started"
                          << "' 2>/dev/null && exec '" << HILBERT_RING_WORKER_WrongScores
                          << "' \"$@\"\n"
                          << "exec '" << HILBERT_RING_WORKER_BINARY << "' \"$@\"\n";
    std::filesystem::permissions(worker, std::filesystem::perms::owner_all, error);
  }

  std::string coordinator() const { return folder_ / "hilbert-ring-coordinator"; }

 private:
  TestFolder folder_;
};

TEST(WrongRowsOfASpawnedWorker, AnotherIsStartedInItsPlace) {
  const ProgramsWithOneFault programs;
  const auto cluster = StartFaultCluster({.workers = 2,
                                          .arguments = {"--check-rows=1000", "--job-workers=2"},
                                          .coordinator = programs.coordinator()})
                           .value();
  const std::vector<pid_t> first = cluster->Workers();
  ASSERT_EQ(first.size(), 2u);
  const FaultJob job = CheckedJob();
  for (int jobs = 0; jobs < 2; ++jobs) EXPECT_EQ(RunOnce(*cluster, job).reason, "ROW_MISMATCH");
  // The quarantined worker ends a moment after the second job.
  EXPECT_TRUE(Await([&] {
    const std::vector<pid_t> now = cluster->Workers();
    return std::ranges::count_if(
               first, [&](pid_t pid) { return std::ranges::find(now, pid) != now.end(); }) == 1;
  }));
  EXPECT_TRUE(Await([&] { return WorkersUp(*cluster) == 2; }));
  ExpectRightAndChecked(*cluster, job);
}

// The last of two workers has the device. All jobs are right at the first attempt.
std::unique_ptr<Cluster> JobsGoOnBeside(const char* device) {
  auto cluster = StartFaultCluster({.workers = 2,
                                    .place = WorkerPlace::kRemote,
                                    .arguments = {"--job-workers=1"},
                                    .last_worker = device})
                     .value();
  const FaultJob job = CheckedJob();
  std::vector<JobEnd> ends(8);
  {
    std::vector<std::jthread> callers;
    for (JobEnd& end : ends) callers.emplace_back([&] { end = RunOnce(*cluster, job); });
  }
  int retries = 0;
  for (const JobEnd& end : ends) {
    EXPECT_EQ(end.verdict, Verdict::kRight) << end.what << end.status;
    EXPECT_EQ(end.attempts, 1) << end.failures;
    retries += end.retries;
  }
  EXPECT_GE(retries, 1);
  return cluster;
}

// A GPU's error outlasts its call: only another process can compute.
TEST(BrokenDevice, EndsItsWorkerAndTheJobGoesOn) {
  EXPECT_EQ(JobsGoOnBeside(HILBERT_RING_WORKER_Broken)->Workers().size(), 1u);
}

TEST(DeviceWithoutMemory, JobsGoOnElsewhereAndItsWorkerBacksOff) {
  const auto cluster = JobsGoOnBeside(HILBERT_RING_WORKER_NoMemory);
  const auto described = cluster->Describe().value();
  int blamed = 0;
  for (const v1::ClusterWorker& worker : described.workers()) {
    blamed += worker.reason().find("the system refused") != std::string::npos;
  }
  EXPECT_EQ(blamed, 1);
}

}  // namespace
}  // namespace hilbert_ring::testing
