#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_rounds.h"
#include "tests/faults/tally.h"

namespace hilbert_ring::testing {
namespace {

class WorkerStall : public ::testing::TestWithParam<WorkerPlace> {};

class Stall {
 public:
  Stall(pid_t pid, std::chrono::milliseconds length) : pid_(pid), length_(length) {}
  ~Stall() { Resume(); }

  void Begin() {
    kill(pid_, SIGSTOP);
    timer_ = std::jthread([this](const std::stop_token& stop) {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, stop, length_, [] { return false; });
      kill(pid_, SIGCONT);
    });
  }

  void Resume() {
    timer_.request_stop();
    if (timer_.joinable()) timer_.join();
  }

 private:
  const pid_t pid_;
  const std::chrono::milliseconds length_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread timer_;
};

void ExpectSomeJobs(const FaultRig& rig, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3; ++i) {
    int tries = 0;
    EXPECT_EQ(RunNextJob(rig.cluster().address(), random, absl::Seconds(30), tries), "");
  }
}

TEST_P(WorkerStall, EndsRightOrTyped) {
  const auto draw = [](FaultRig& rig, std::mt19937_64& random) {
    const std::vector<pid_t> workers = rig.cluster().Workers();
    const pid_t victim = workers.at(random() % workers.size());
    // Often longer than the worker's timeout; sometimes beyond the job's end.
    const std::chrono::milliseconds length(random() % 3 == 0 ? 60'000 : 200 + random() % 5'000);
    const auto stall = std::make_shared<Stall>(victim, length);
    return Fault{.what = absl::StrCat("process ", victim, " for ", length.count(), " ms"),
                 .begin = [=] { stall->Begin(); },
                 .end =
                     [=, &rig, resumed = random() % 2 == 0, seed = random()] {
                       // The worker continues while other jobs run, which may have the memory that
                       // it still writes to.
                       if (resumed) stall->Resume();
                       ExpectSomeJobs(rig, seed);
                       stall->Resume();
                     }};
  };
  RunFaultRounds({.name = absl::StrCat("stopped workers, ", PlaceName(GetParam())),
                  .seed = 200'000 + 10'000 * static_cast<uint64_t>(GetParam())},
                 {.workers = 3, .place = GetParam()}, draw);
}

INSTANTIATE_TEST_SUITE_P(Workers, WorkerStall,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote,
                                           WorkerPlace::kUnshared),
                         [](const auto& info) { return PlaceName(info.param); });

}  // namespace
}  // namespace hilbert_ring::testing
