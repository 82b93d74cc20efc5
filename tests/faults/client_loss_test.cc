// A client is killed, cancels or passes its deadline at a random moment.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_rig.h"
#include "tests/faults/tally.h"
#include "tests/support/process_account.h"
#include "tests/support/program.h"
#include "tests/support/sanitizer.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr double kFreeWithin = 1.0;  // seconds, at the 99th percentile
// The transport and the allocator may keep this much of a job of half a gigabyte.
constexpr int64_t kSlackBytes = 24 * kMiB;
constexpr milliseconds kGiveUp{10'000};

enum class Loss { kKilled, kCancelled, kDeadline };

// 128 MiB for each tensor, and more compute than any moment waits for.
FaultJob LargeJob() {
  FaultJob job = MakeZeroJob(1 << 16, 8, 64, 1 << 15);
  job.spec.branches.push_back({1 << 16, 16});
  return job;
}

class JobMemory {
 public:
  explicit JobMemory(Cluster& cluster) : pids_(cluster.Processes()) {
    for (const pid_t pid : pids_) idle_.push_back(AccountOf(pid));
  }

  bool Held() const {
    for (size_t i = 0; i < pids_.size(); ++i) {
      const ProcessAccount now = AccountOf(pids_[i]);
      if (now.memory.resident() > idle_[i].memory.resident() + kSlackBytes) return true;
    }
    return false;
  }

  double SecondsUntilFree() const {
    const Clock::time_point start = Clock::now();
    while (Held() && Clock::now() - start < kGiveUp) {
      std::this_thread::sleep_for(milliseconds(2));
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  const std::vector<pid_t> pids_;
  std::vector<ProcessAccount> idle_;
};

class ClientLoss : public ::testing::TestWithParam<WorkerPlace> {
 protected:
  // held: whether memory was held before the end, because a slow machine may look too late.
  std::string RunAndLose(Cluster& cluster, Loss loss, milliseconds after, const JobMemory& memory,
                         bool& held) {
    const Clock::time_point end = Clock::now() + after;
    const auto look = [&] { held = held || memory.Held(); };
    if (loss == Loss::kKilled) {
      auto client =
          Program::Start({.arguments = Command(cluster.address()), .log = folder_ / "client.log"});
      if (!client.ok()) return client.status().ToString();
      for (; Clock::now() < end; look()) std::this_thread::sleep_for(milliseconds(5));
      (*client)->Signal(SIGKILL);
      const auto how = (*client)->AwaitEnd(milliseconds(5000));
      return how.ok() ? *how : how.status().ToString();
    }
    client::AttendOptions options;
    if (loss == Loss::kDeadline) options.deadline = absl::FromChrono(after);
    options.cancelled = [&] {
      look();
      return loss == Loss::kCancelled && Clock::now() > end;
    };
    const JobEnd ended = RunJob(cluster.address(), job_, options);
    return std::string(absl::StatusCodeToString(ended.status.code()));
  }

  std::vector<std::string> Command(const std::string& server) const {
    const JobSpec& spec = job_.spec;
    const std::string rows = folder_ / "rows.npy", shape = folder_ / "spec.json";
    std::ofstream(shape) << FormatJobSpec(spec);
    const std::vector<int64_t> axes = {spec.tokens, spec.heads, spec.head_dim};
    auto file = client::NpyWriter::Create(rows, wire::NpyType::kFloat32, axes);
    EXPECT_TRUE(file.ok() && file->Commit().ok());
    return {HILBERT_RING_CLIENT_BINARY,
            "attend",
            "--server=" + server,
            "--spec=" + shape,
            "--q=" + rows,
            "--k=" + rows,
            "--v=" + rows,
            "--out=" + (folder_ / "out.npy")};
  }

  const FaultJob job_ = LargeJob();
  const TestFolder folder_;
};

TEST_P(ClientLoss, MemoryIsFreeAgain) {
  const bool local = GetParam() == WorkerPlace::kLocal;
  const std::string name = absl::StrCat("lost clients, ", PlaceName(GetParam()));
  const uint64_t seed = FaultSeed(name, local ? 7000 : 8000);
  const int rounds = RoundsOf(2);
  FaultRig rig({.workers = 2, .place = GetParam()});
  std::vector<double> seconds;
  int held = 0;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed + round);
    ASSERT_EQ(rig.BeginRound(random), "") << "seed " << seed + round;
    constexpr Loss kLosses[] = {Loss::kKilled, Loss::kCancelled, Loss::kDeadline};
    constexpr const char* kEnds[] = {"signal 9", "CANCELLED", "DEADLINE_EXCEEDED"};
    const auto which = (seed + round) % 3;
    const milliseconds after(random() % 3000);
    SCOPED_TRACE(
        absl::StrCat("seed ", seed + round, ", ", kEnds[which], " after ", after.count(), " ms"));
    const JobMemory memory(rig.cluster());
    bool of_round = false;
    EXPECT_EQ(RunAndLose(rig.cluster(), kLosses[which], after, memory, of_round), kEnds[which]);
    if (!kResidentBytesAreTheSanitizers) {
      held += of_round;
      seconds.push_back(memory.SecondsUntilFree());
      EXPECT_LT(seconds.back(), std::chrono::duration<double>(kGiveUp).count());
    }
    EXPECT_EQ(rig.EndRound(random), "");
    if (HasFatalFailure()) break;
  }
  if (kResidentBytesAreTheSanitizers) {
    GTEST_SKIP() << "clients are lost, but resident bytes are the sanitizer's";
  }
  const double p99 = Percentile(seconds, 0.99);
  std::printf(
      "| %s | %zu, %d of them with memory to free | seconds until it was free: median %.3f, "
      "p99 %.3f |\n",
      name.c_str(), seconds.size(), held, Percentile(seconds, 0.5), p99);
  EXPECT_GT(held, 0) << "nothing was measured";
  EXPECT_LT(p99, kFreeWithin);
}

INSTANTIATE_TEST_SUITE_P(Workers, ClientLoss,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote),
                         [](const auto& info) { return PlaceName(info.param); });

}  // namespace
}  // namespace hilbert_ring::testing
