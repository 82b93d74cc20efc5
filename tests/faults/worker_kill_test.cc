#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_rounds.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

class WorkerKill : public ::testing::TestWithParam<WorkerPlace> {};

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
  const auto draw = [](FaultRig& rig, std::mt19937_64& random) {
    const bool registering = random() % 8 == 0;
    if (registering) KillWhileRegistering(rig.cluster(), random);
    const std::vector<pid_t> workers = rig.cluster().Workers();
    const pid_t victim = workers.at(random() % workers.size());
    return Fault{.what = absl::StrCat(registering ? "while registering, " : "", "process ", victim),
                 .begin = [=] {
                   if (!registering) kill(victim, SIGKILL);
                 }};
  };
  RunFaultRounds({.name = absl::StrCat("killed workers, ", PlaceName(GetParam())),
                  .seed = 100'000 + 10'000 * static_cast<uint64_t>(GetParam()),
                  .few = 3},
                 {.workers = 3, .place = GetParam()}, draw);
}

INSTANTIATE_TEST_SUITE_P(Workers, WorkerKill,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote,
                                           WorkerPlace::kUnshared),
                         [](const auto& info) { return PlaceName(info.param); });

}  // namespace
}  // namespace hilbert_ring::testing
