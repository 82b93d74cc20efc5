// The coordinator is killed at a random moment of a random job.
#include <signal.h>

#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_moment.h"
#include "tests/faults/fault_rig.h"
#include "tests/faults/tally.h"
#include "tests/support/process_account.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRestoreLimit{30'000};
constexpr milliseconds kOrphanLimit{5'000};

class CoordinatorKill : public ::testing::TestWithParam<WorkerPlace> {};

std::vector<pid_t> AwaitEnds(std::vector<pid_t> pids, milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  while (!pids.empty() && Clock::now() < end) {
    std::erase_if(pids, [](pid_t pid) { return !AccountOf(pid).there; });
    std::this_thread::sleep_for(milliseconds(5));
  }
  return pids;
}

TEST_P(CoordinatorKill, EndsRightOrTyped) {
  const bool local = GetParam() == WorkerPlace::kLocal;
  const std::string name = absl::StrCat("killed coordinators, ", PlaceName(GetParam()));
  const uint64_t seed = FaultSeed(name, local ? 5000 : 6000);
  const int rounds = RoundsOf(2);
  FaultRig rig({.workers = 2, .place = GetParam()});
  Tally tally(name);
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed + round);
    ASSERT_EQ(rig.BeginRound(random), "") << "seed " << seed + round;
    Cluster& cluster = rig.cluster();
    const Moment drawn = DrawMoment(random);
    const pid_t victim = cluster.coordinator();
    const std::vector<pid_t> workers = cluster.Workers();
    const milliseconds pause(random() % 1000);
    const std::string trace =
        absl::StrCat("seed ", seed + round, ", ", PhaseName(drawn.phase), " ", drawn.part,
                     ", process ", victim, ": ", Describe(rig.job()));
    SCOPED_TRACE(trace);
    std::atomic<bool> killed = false;
    FaultMoment moment(drawn, rig.job().seconds, [&] {
      kill(victim, SIGKILL);
      killed = true;
    });
    std::future<JobEnd> job = std::async(std::launch::async, [&] {
      return RunJob(cluster.address(), rig.job(),
                    {.deadline = absl::Seconds(45), .progress = moment.progress()});
    });
    while (!killed && job.wait_for(milliseconds(1)) == std::future_status::timeout) {
    }
    const bool fired = moment.Settle();
    if (fired) {
      if (local) {
        EXPECT_TRUE(AwaitEnds(workers, kOrphanLimit).empty()) << "workers outlive it";
      }
      std::this_thread::sleep_for(pause);
      ASSERT_TRUE(cluster.RestartCoordinator().ok());
      const absl::Status restored = cluster.Restore(kRestoreLimit);
      EXPECT_TRUE(restored.ok()) << restored << ", logs are in " << cluster.KeepLogs();
    }
    const JobEnd end = job.get();
    tally.Count(end, fired, trace);
    EXPECT_NE(end.verdict, Verdict::kBad)
        << end.what << "; logs are in " << (end.what.empty() ? "" : cluster.KeepLogs());
    EXPECT_LT(end.seconds, 3 * rig.job().seconds + 30);
    EXPECT_EQ(rig.EndRound(random), "");
    if (!local) {
      EXPECT_EQ(cluster.Workers(), workers) << "remote workers stay";
    }
    if (HasFatalFailure()) break;
  }
  tally.Print();
  EXPECT_EQ(tally.bad(), 0);
}

INSTANTIATE_TEST_SUITE_P(Workers, CoordinatorKill,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote),
                         [](const auto& info) { return PlaceName(info.param); });

}  // namespace
}  // namespace hilbert_ring::testing
