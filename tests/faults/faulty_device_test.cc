// A worker whose device errs: checksums are right, rows are not. With --check-rows the job fails,
// the worker is named and gets no more, and the service goes on with the others. One whose device
// is broken ends, and its job goes on elsewhere.
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

struct Sharing {
  const char* name;
  WorkerPlace place;
  const char* of_workers;

  friend void PrintTo(const Sharing& sharing, std::ostream* to) { *to << sharing.name; }
};

class WrongRows : public ::testing::TestWithParam<Sharing> {
 protected:
  // Two workers, of which the second errs.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(int rows_to_check) {
    return StartFaultCluster(
        {.workers = 2,
         .place = GetParam().place,
         .arguments = {absl::StrCat("--check-rows=", rows_to_check), "--job-workers=2"},
         .worker_arguments = {absl::StrCat("--share-memory=", GetParam().of_workers)},
         .last_worker = HILBERT_RING_WORKER_WrongScores});
  }

  static std::map<std::string, v1::ClusterWorker::State> States(const Cluster& cluster) {
    std::map<std::string, v1::ClusterWorker::State> states;
    const auto described = cluster.Describe();
    EXPECT_TRUE(described.ok()) << described.status();
    for (const v1::ClusterWorker& worker : described->workers()) {
      states[worker.address()] = worker.state();
    }
    return states;
  }
};

TEST_P(WrongRows, AreFoundAndTheirWorkerIsLeftOut) {
  auto cluster = Start(1000);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::mt19937_64 random(1);
  auto job = MakeSmallJob(random);
  while (job.ok() && (job->spec.tokens < 50 || job->spec.tokens > 1000)) job = MakeSmallJob(random);
  ASSERT_TRUE(job.ok()) << job.status();

  // One wrong row may be chance, wrong rows in two jobs are not.
  for (const int jobs : {1, 2}) {
    const JobEnd wrong = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)});
    EXPECT_TRUE(absl::IsDataLoss(wrong.status)) << wrong.status << wrong.what;
    EXPECT_EQ(wrong.reason, "ROW_MISMATCH");
    EXPECT_THAT(std::string(wrong.status.message()), HasSubstr("token "));
    EXPECT_EQ(wrong.attempts, 1);
    int trusted = 0;
    for (const auto& [address, state] : States(**cluster)) {
      if (state == v1::ClusterWorker::STATE_UP) {
        ++trusted;
        continue;
      }
      EXPECT_EQ(state, v1::ClusterWorker::STATE_DISTRUSTED);
      EXPECT_THAT(std::string(wrong.status.message()), HasSubstr(address));
    }
    EXPECT_EQ(trusted, jobs == 1 ? 2 : 1);
  }

  const JobEnd next = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)});
  EXPECT_EQ(next.verdict, Verdict::kRight) << next.what << next.status;
  EXPECT_EQ(next.rows_checked, job->spec.tokens);

  // A worker that is started anew is trusted again.
  kill((*cluster)->Workers().at(1), SIGKILL);
  const absl::Status restored = (*cluster)->Restore(std::chrono::seconds(30));
  EXPECT_TRUE(restored.ok()) << restored;
  const auto all_up = [&] {
    const auto states = States(**cluster);
    return states.size() == 2 && std::all_of(states.begin(), states.end(), [](const auto& worker) {
             return worker.second == v1::ClusterWorker::STATE_UP;
           });
  };
  // The one that was killed may be missed only a moment later.
  for (int i = 0; i < 1000 && !all_up(); ++i) {
    EXPECT_TRUE((*cluster)->StartEnded().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(all_up());
}

TEST_P(WrongRows, AreNotLookedForUnlessAsked) {
  auto cluster = Start(0);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::mt19937_64 random(2);
  const auto job = MakeSmallJob(random);
  ASSERT_TRUE(job.ok()) << job.status();
  const JobEnd end = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)});
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(end.rows_checked, 0);
  for (const auto& [address, state] : States(**cluster)) {
    EXPECT_EQ(state, v1::ClusterWorker::STATE_UP) << address;
  }
}

// The service's programs in a folder of their own, where the first worker that is started errs, and
// those after it do not.
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
  auto cluster = StartFaultCluster({.workers = 2,
                                    .arguments = {"--check-rows=1000", "--job-workers=2"},
                                    .coordinator = programs.coordinator()});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<pid_t> first = (*cluster)->Workers();
  ASSERT_EQ(first.size(), 2u);
  const auto stayed = [&] {
    int count = 0;
    for (const pid_t pid : (*cluster)->Workers())
      count += std::count(first.begin(), first.end(), pid);
    return count;
  };
  std::mt19937_64 random(1);
  auto job = MakeSmallJob(random);
  while (job.ok() && (job->spec.tokens < 50 || job->spec.tokens > 1000)) job = MakeSmallJob(random);
  ASSERT_TRUE(job.ok()) << job.status();
  for (const int workers_that_stay : {2, 1}) {
    const JobEnd wrong = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)});
    EXPECT_EQ(wrong.reason, "ROW_MISMATCH") << wrong.status << wrong.what;
    // After the second job it ends, which takes a moment.
    for (int i = 0; i < 3000 && stayed() > workers_that_stay; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(stayed(), workers_that_stay);
  }
  const auto up = [&] {
    const auto described = (*cluster)->Describe();
    if (!described.ok()) return int64_t{0};
    return std::count_if(described->workers().begin(), described->workers().end(),
                         [](const v1::ClusterWorker& worker) {
                           return worker.state() == v1::ClusterWorker::STATE_UP;
                         });
  };
  for (int i = 0; i < 3000 && up() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(up(), 2);
  const JobEnd next = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)});
  EXPECT_EQ(next.verdict, Verdict::kRight) << next.what << next.status;
  EXPECT_EQ(next.rows_checked, job->spec.tokens);
}

// A GPU's errors outlast the call that they came from: only another process computes again.
TEST(BrokenDevice, EndsItsWorkerAndTheJobGoesOn) {
  auto cluster = StartFaultCluster({.workers = 2,
                                    .place = WorkerPlace::kRemote,
                                    .arguments = {"--job-workers=1"},
                                    .last_worker = HILBERT_RING_WORKER_Broken});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ((*cluster)->Workers().size(), 2u);
  std::mt19937_64 random(3);
  const auto job = MakeSmallJob(random);
  ASSERT_TRUE(job.ok()) << job.status();
  // Side by side, so that both workers get some.
  std::vector<JobEnd> ends(8);
  {
    std::vector<std::jthread> callers;
    callers.reserve(ends.size());
    for (JobEnd& end : ends) {
      callers.emplace_back(
          [&] { end = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)}); });
    }
  }
  int retries = 0;
  for (const JobEnd& end : ends) {
    EXPECT_EQ(end.verdict, Verdict::kRight) << end.what << end.status;
    EXPECT_EQ(end.attempts, 1) << end.failures;
    retries += end.retries;
  }
  EXPECT_GE(retries, 1);
  EXPECT_EQ((*cluster)->Workers().size(), 1u);
}

// It says itself that it fails, and stays: nobody else would find out.
TEST(DeviceWithoutMemory, JobsGoOnElsewhereAndItsWorkerRests) {
  auto cluster = StartFaultCluster({.workers = 2,
                                    .place = WorkerPlace::kRemote,
                                    .arguments = {"--job-workers=1"},
                                    .last_worker = HILBERT_RING_WORKER_NoMemory});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::mt19937_64 random(3);
  const auto job = MakeSmallJob(random);
  ASSERT_TRUE(job.ok()) << job.status();
  // Side by side, so that both workers get some.
  std::vector<JobEnd> ends(8);
  {
    std::vector<std::jthread> callers;
    callers.reserve(ends.size());
    for (JobEnd& end : ends) {
      callers.emplace_back(
          [&] { end = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)}); });
    }
  }
  int retries = 0;
  for (const JobEnd& end : ends) {
    EXPECT_EQ(end.verdict, Verdict::kRight) << end.what << end.status;
    EXPECT_EQ(end.attempts, 1) << end.failures;
    retries += end.retries;
  }
  EXPECT_GE(retries, 1);
  const auto described = (*cluster)->Describe();
  ASSERT_TRUE(described.ok()) << described.status();
  int blamed = 0;
  for (const v1::ClusterWorker& worker : described->workers()) {
    blamed += worker.reason().find("the system refused") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(blamed, 1);
}

// Rows that were sent again would find no memory either.
TEST(DeviceWithoutMemory, AloneEndsTheJobAtTheFirstAttempt) {
  auto cluster = StartFaultCluster(
      {.workers = 1, .place = WorkerPlace::kRemote, .last_worker = HILBERT_RING_WORKER_NoMemory});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::mt19937_64 random(3);
  const auto job = MakeSmallJob(random);
  ASSERT_TRUE(job.ok()) << job.status();
  const JobEnd end = RunJob((*cluster)->address(), *job, {.deadline = absl::Seconds(60)});
  EXPECT_EQ(end.reason, "WORKER_MEMORY") << end.status;
  EXPECT_EQ(end.attempts, 1) << end.failures;
}

INSTANTIATE_TEST_SUITE_P(Workers, WrongRows,
                         ::testing::Values(Sharing{"Shared", WorkerPlace::kUnshared, "true"},
                                           Sharing{"Copied", WorkerPlace::kRemote, "false"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hilbert_ring::testing
