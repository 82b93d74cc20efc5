#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_rounds.h"
#include "tests/faults/host_network.h"
#include "tests/faults/on_hosts.h"
#include "tests/faults/tally.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;

enum class Trouble { kIsolated, kPeerCut, kFlapping, kLoss };

const char* TroubleName(Trouble trouble) {
  constexpr const char* kNames[] = {"cut from all", "cut from one peer", "cut again and again",
                                    "loss"};
  return kNames[static_cast<int>(trouble)];
}

class NetworkTrouble {
 public:
  NetworkTrouble(HostNetwork& network, Trouble trouble, int victim, int peer, milliseconds length)
      : network_(network), trouble_(trouble), victim_(victim), peer_(peer), length_(length) {}
  ~NetworkTrouble() { End(); }

  void Begin() {
    Apply();
    timer_ = std::jthread([this](const std::stop_token& stop) {
      const auto end = std::chrono::steady_clock::now() + length_;
      std::unique_lock lock(mutex_);
      for (bool cut = true; std::chrono::steady_clock::now() < end && !stop.stop_requested();) {
        const auto next = trouble_ == Trouble::kFlapping
                              ? std::min(end, std::chrono::steady_clock::now() + milliseconds(150))
                              : end;
        wake_.wait_until(lock, stop, next, [] { return false; });
        if (trouble_ != Trouble::kFlapping) continue;
        cut = !cut;
        cut ? Apply() : network_.Mend();
      }
      network_.Mend();
    });
  }

  void End() {
    timer_.request_stop();
    if (timer_.joinable()) timer_.join();
  }

 private:
  void Apply() {
    switch (trouble_) {
      case Trouble::kIsolated:
      case Trouble::kFlapping:
        return network_.Isolate(victim_);
      case Trouble::kPeerCut:
        return network_.Cut(victim_, peer_);
      case Trouble::kLoss:
        return network_.SetLoss(0.01);
    }
  }

  HostNetwork& network_;
  const Trouble trouble_;
  const int victim_, peer_;
  const milliseconds length_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread timer_;
};

class Partition : public OnHosts {};

// Heartbeats of all workers arrive, but two workers form no ring.
TEST_F(Partition, TwoWorkersNeverReachEachOther) {
  const uint64_t seed = FaultSeed("two workers apart", 12'000);
  std::mt19937_64 random(seed);
  ClusterOptions options = EachOnItsHost();
  options.arguments = {"--stall-timeout=3"};
  const auto cluster = StartFaultCluster(options).value();
  const auto job = MakeMiddleJob(random, cluster->address());
  ASSERT_TRUE(job.ok()) << job.status();
  network().Cut(kCoordinatorHost + 1, kCoordinatorHost + 3);
  const JobEnd end = RunJob(cluster->address(), *job, {.deadline = absl::Seconds(60)});
  EXPECT_EQ(end.verdict, Verdict::kRight) << end.what << end.status << end.failures;
  // The limit covers a stall, 10 s of failed connects, and the job.
  EXPECT_LT(end.seconds, 10 * job->seconds + 30);
  std::printf("%.2f s, %d retries, %d attempts\n", end.seconds, end.retries, end.attempts);
  if (HasFailure()) std::printf("logs are in %s\n", cluster->KeepLogs().c_str());
}

TEST_F(Partition, EndsRightOrTyped) {
  const auto draw = [](FaultRig&, std::mt19937_64& random) {
    const auto trouble = static_cast<Trouble>(random() % 4);
    const int victim = kCoordinatorHost + 1 + static_cast<int>(random() % kWorkers);
    const int peer = kCoordinatorHost + 1 + (victim - kCoordinatorHost) % kWorkers;
    // Most lengths exceed the --worker-timeout of 2 s. A quarter outlast the job.
    const milliseconds length(random() % 4 == 0 ? 60'000 : 300 + random() % 5'000);
    const auto disturbance =
        std::make_shared<NetworkTrouble>(network(), trouble, victim, peer, length);
    return Fault{.what = absl::StrCat(TroubleName(trouble), ", host ", victim, " for ",
                                      length.count(), " ms"),
                 .begin = [=] { disturbance->Begin(); },
                 .end = [=] { disturbance->End(); }};
  };
  RunFaultRounds({.name = "partitions and loss", .seed = 11'000, .times = 10, .more = 45},
                 EachOnItsHost(), draw);
}

}  // namespace
}  // namespace hilbert_ring::testing
