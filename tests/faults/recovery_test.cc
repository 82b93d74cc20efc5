// How long it takes from the death of a worker until a ring computes again.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_rig.h"
#include "tests/faults/tally.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kLimit = 3;  // seconds, median

class Recovery : public ::testing::TestWithParam<WorkerPlace> {
 protected:
  // Runs the long job, again where it ends with an error, until told to stop.
  void CallAgainAndAgain(const std::string& address) {
    while (!stop_) {
      client::AttendOptions options{.deadline = absl::Seconds(60)};
      options.cancelled = [this] { return stop_.load(); };
      options.progress = [this](const client::AttendProgress& progress) {
        // Rows still come in at first.
        if (progress.compute_fraction > 0 && progress.compute_fraction != fraction_) {
          fraction_ = progress.compute_fraction;
          ++computing_;
        }
      };
      RunJob(address, job_, options);
    }
  }

  // Waits for a ring that is leased, of a newer generation than the last. Its generation, or 0.
  int64_t AwaitRing(Cluster& cluster, int64_t after, milliseconds limit) {
    const Clock::time_point end = Clock::now() + limit;
    while (Clock::now() < end) {
      const auto state = cluster.Describe();
      if (state.ok()) {
        for (const v1::Ring& ring : state->rings()) {
          if (ring.generation() > after && !ring.job_id().empty()) return ring.generation();
        }
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return 0;
  }

  bool AwaitCompute(milliseconds limit) {
    const int before = computing_;
    const Clock::time_point end = Clock::now() + limit;
    while (computing_ == before && Clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    return computing_ != before;
  }

  // Seconds of compute on rows that all workers exchange.
  const FaultJob job_ = MakeZeroJob(24'000, 8, 64, 24'000);
  std::atomic<bool> stop_ = false;
  std::atomic<int> computing_ = 0;    // times that progress of compute was heard of
  std::atomic<double> fraction_ = 0;  // the last one
};

TEST_P(Recovery, TheNextRingComputesSoon) {
  const bool local = GetParam() == WorkerPlace::kLocal;
  const std::string name = absl::StrCat("recovery, ", PlaceName(GetParam()));
  const uint64_t seed = FaultSeed(name, local ? 9000 : 10'000);
  const int rounds = FaultRounds(2);
  std::vector<double> formed, computes;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed + round);
    SCOPED_TRACE(absl::StrCat("seed ", seed + round));
    auto started = StartFaultCluster({.workers = 3, .place = GetParam()});
    ASSERT_TRUE(started.ok()) << started.status();
    Cluster& cluster = **started;
    stop_ = false;
    std::thread caller([&] { CallAgainAndAgain(cluster.address()); });
    const int64_t first = AwaitRing(cluster, 0, milliseconds(20'000));
    bool there = first > 0 && AwaitCompute(milliseconds(20'000));
    EXPECT_TRUE(there) << "the first ring";
    if (there) {
      std::this_thread::sleep_for(milliseconds(random() % 300));
      const std::vector<pid_t> workers = cluster.Workers();
      const Clock::time_point killed = Clock::now();
      kill(workers.at(random() % workers.size()), SIGKILL);
      there = AwaitRing(cluster, first, milliseconds(30'000)) > 0;
      EXPECT_TRUE(there) << "the next ring; logs are in " << cluster.KeepLogs();
      formed.push_back(std::chrono::duration<double>(Clock::now() - killed).count());
      EXPECT_TRUE(AwaitCompute(milliseconds(30'000)));
      computes.push_back(std::chrono::duration<double>(Clock::now() - killed).count());
    }
    stop_ = true;
    caller.join();
  }
  std::printf(
      "| %s | seconds from SIGKILL to the next ring formed: median %.2f, most %.2f | "
      "computing: median %.2f, most %.2f |\n",
      name.c_str(), Percentile(formed, 0.5), Percentile(formed, 1), Percentile(computes, 0.5),
      Percentile(computes, 1));
  EXPECT_LT(Percentile(computes, 0.5), kLimit);
}

INSTANTIATE_TEST_SUITE_P(Workers, Recovery,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote),
                         [](const auto& info) { return PlaceName(info.param); });

}  // namespace
}  // namespace hilbert_ring::testing
