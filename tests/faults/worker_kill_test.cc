// A worker is killed at a random moment of a random job: the result is right, or the error says
// why, soon; and the service goes on.
#include <signal.h>

#include <algorithm>
#include <chrono>
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

constexpr double kJobLimit = 25;  // seconds beyond three times what the job takes undisturbed

class WorkerKill : public ::testing::TestWithParam<WorkerPlace> {};

// Kills a worker that has not registered yet, or has just.
void KillWhileRegistering(Cluster& cluster, std::mt19937_64& random) {
  const std::vector<pid_t> before = cluster.Workers();
  kill(before.at(random() % before.size()), SIGKILL);
  const Clock::time_point end = Clock::now() + std::chrono::seconds(15);
  while (Clock::now() < end) {
    cluster.StartEnded().IgnoreError();
    for (const pid_t pid : cluster.Workers()) {
      if (std::find(before.begin(), before.end(), pid) != before.end()) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 80));
      kill(pid, SIGKILL);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_P(WorkerKill, EndsRightOrTyped) {
  const std::string name = absl::StrCat("killed workers, ", PlaceName(GetParam()));
  const uint64_t seed = FaultSeed(name, 100'000 + 10'000 * static_cast<int>(GetParam()));
  const int rounds = FaultRounds(3);
  FaultRig rig({.workers = 3, .place = GetParam()});
  Tally tally(name);
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed + round);
    ASSERT_EQ(rig.BeginRound(random), "") << "seed " << seed + round;
    const pid_t coordinator = rig.cluster().coordinator();
    const bool registering = random() % 8 == 0;
    if (registering) KillWhileRegistering(rig.cluster(), random);
    const Moment drawn = DrawMoment(random);
    const std::vector<pid_t> workers = rig.cluster().Workers();
    const pid_t victim = workers.at(random() % workers.size());
    const std::string trace = absl::StrCat("seed ", seed + round, ", ", PhaseName(drawn.phase), " ",
                                           drawn.part, registering ? ", while registering" : "",
                                           ", process ", victim, ": ", Describe(rig.job()));
    SCOPED_TRACE(trace);
    FaultMoment moment(drawn, rig.job().seconds, [&] {
      if (!registering) kill(victim, SIGKILL);
    });
    const JobEnd end = RunJob(rig.cluster().address(), rig.job(),
                              {.deadline = absl::Seconds(60), .progress = moment.progress()});
    tally.Count(end, moment.Settle() || registering, trace);
    EXPECT_NE(end.verdict, Verdict::kBad)
        << end.what << "; logs are in " << (end.what.empty() ? "" : rig.cluster().KeepLogs());
    EXPECT_LT(end.seconds, 3 * rig.job().seconds + kJobLimit);
    EXPECT_EQ(rig.EndRound(random), "");
    EXPECT_EQ(rig.cluster().coordinator(), coordinator);
    EXPECT_TRUE(AccountOf(coordinator).there && !AccountOf(coordinator).zombie);
    if (HasFatalFailure()) break;
  }
  tally.Print();
  std::printf("next jobs: %d, right at the first try %d\n", rig.next_jobs(),
              rig.next_jobs_at_once());
  EXPECT_EQ(tally.bad(), 0);
}

INSTANTIATE_TEST_SUITE_P(Workers, WorkerKill,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote,
                                           WorkerPlace::kUnshared),
                         [](const auto& info) { return PlaceName(info.param); });

}  // namespace
}  // namespace hilbert_ring::testing
