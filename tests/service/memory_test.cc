#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "tests/service/memory_watch.h"
#include "tests/service/raw_call.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_depth.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

JobSpec Reports(int64_t tokens, std::vector<Branch> branches) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 8, .dim = 64});
  spec.branches = std::move(branches);
  return spec;
}

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kResidentBytesAreTheSanitizers) {
      GTEST_SKIP() << "resident bytes are the sanitizer's; jobs run in the other service tests";
    }
  }
};

// Sequences of 1, 2, 3 tokens and so on.
JobSpec ShortSequences(int64_t tokens) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 1, .dim = 8, .segment = 4});
  for (int64_t rest = tokens, length = 1; rest > 0; length = length % 3 + 1) {
    spec.sequence_lengths.push_back(std::min(length, rest));
    rest -= spec.sequence_lengths.back();
  }
  return spec;
}

JobSpec Ordered(JobSpec spec) {
  spec.ordering = Ordering{};
  return spec;
}

TEST_F(Memory, WorkersTakeThePlannedMemory) {
  const std::vector<JobSpec> specs = {
      Reports(65536, {{2048, 1}, {4096, 2}, {8192, 4}}), Reports(65536, {{2048, 1}, {65536, 64}}),
      Ordered(Reports(65536, {{2048, 1}})), ShortSequences(1 << 20)};
  for (const JobSpec& spec : specs) {
    for (const int workers : AtDepth<std::vector<int>>({4}, {4}, {1, 2, 4})) {
      const auto cluster = Cluster::Start({.workers = workers}).value();
      auto stub = cluster->Stub();
      const auto plan = MakePlan(spec, workers);
      ASSERT_TRUE(plan.ok());
      MemoryWatch watch(*cluster);
      const auto job = RunConstantJob(*stub, spec, std::chrono::seconds(120));
      ASSERT_TRUE(job.ok()) << job.status();
      const v1::Report& report = *job;
      watch.Stop();
      EXPECT_EQ(report.bytes_exchanged(), plan->costs.bytes_exchanged);
      EXPECT_EQ(report.bytes_exchanged_planned(), plan->costs.bytes_exchanged);
      EXPECT_EQ(report.bytes_exchanged_naive(), plan->costs.bytes_exchanged_naive);
      const std::vector<int64_t> peaks = watch.WorkerPeaks();
      ASSERT_EQ(peaks.size(), static_cast<size_t>(workers));
      for (int rank = 0; rank < workers; ++rank) {
        const auto planned = static_cast<double>(plan->costs.workers[rank].resident_bytes());
        EXPECT_EQ(report.workers(rank).memory_peak_bytes(),
                  plan->costs.workers[rank].resident_bytes());
        // Messages, a few thousand tasks at a time and scratch of threads are beside the plan.
        EXPECT_LT(static_cast<double>(peaks[rank]), 1.01 * planned + 8 * kMiB);
        EXPECT_GT(static_cast<double>(peaks[rank]), 0.99 * planned - kMiB);
      }
      EXPECT_LT(watch.coordinator_peak(), 300 * kMiB);
    }
  }
}

TEST_F(Memory, AClientThatStopsReadingHoldsNothingUp) {
  const auto cluster = Cluster::Start({.workers = 2}).value();
  auto stub = cluster->Stub();
  const JobSpec spec = Reports(65536, {{64, 1}});  // 128 MiB of output
  const auto plan = MakePlan(spec, 2);
  MemoryWatch watch(*cluster);
  RawCall call(*stub, std::chrono::seconds(120));
  ASSERT_TRUE(call.Open(spec));
  ASSERT_TRUE(call.AwaitAdmitted());
  std::atomic<int64_t> sent = 0;
  const std::atomic<bool> stop = false;
  SendConstantRows(call, spec, sent, stop);
  EXPECT_EQ(sent, 3 * spec.tokens) << "input must not wait for output";
  call.WritesDone();
  // The client reads nothing: output backs up to the workers' shards, which are admitted memory.
  std::this_thread::sleep_for(std::chrono::seconds(3));
  watch.Stop();
  EXPECT_LT(watch.coordinator_peak(), 300 * kMiB);
  for (const int64_t peak : watch.WorkerPeaks()) {
    EXPECT_LT(peak, plan->costs.workers[0].resident_bytes() * 115 / 100 + 16 * kMiB);
  }
  v1::AttendResponse response;
  int64_t rows = 0;
  bool reported = false;
  while (call.Read(&response)) {
    if (response.has_output() && response.output().tensor() == v1::TENSOR_OUT) {
      rows += response.output().rows();
    }
    reported = reported || response.has_report();
  }
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(rows, spec.tokens);
  EXPECT_TRUE(reported);
}

// Workers in other containers and on GPUs refuse the coordinator's memory.
TEST_F(Memory, RowsThatWereOfferedAreHeldWithinTheLimitOfCopies) {
  const JobSpec spec = PlainSpec({.tokens = 65'536, .heads = 4, .dim = 32, .segment = 64});
  for (const bool held : {false, true}) {  // 96 MiB of rows, little compute
    const auto cluster =
        Cluster::Start({.workers = 1,
                        .place = WorkerPlace::kUnshared,
                        .arguments = {held ? "--copy-memory=1GiB" : "--copy-memory=1MiB"}})
            .value();
    int64_t peak = 0;
    std::jthread watch([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        peak = std::max(peak, AccountOf(cluster->coordinator()).shared_memory_bytes);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
    const auto job = RunConstantJob(*cluster->Stub(), spec, std::chrono::seconds(60));
    watch = {};
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(peak > 80 * kMiB, held);
    if (!held) EXPECT_LT(peak, 16 * kMiB);
  }
}

TEST_F(Memory, AStalledWorkerStopsTheSender) {
  const auto cluster =
      Cluster::Start({.workers = 2, .arguments = {"--worker-timeout=60", "--share-memory=false"}})
          .value();
  auto stub = cluster->Stub();
  const JobSpec spec = Reports(1 << 18, {{2048, 1}});  // 1.5 GiB of input
  MemoryWatch watch(*cluster);
  RawCall call(*stub, std::chrono::seconds(120));
  ASSERT_TRUE(call.Open(spec));
  ASSERT_TRUE(call.AwaitAdmitted());
  const std::vector<pid_t> workers = cluster->Workers();
  for (const pid_t pid : workers) kill(pid, SIGSTOP);
  std::atomic<int64_t> sent = 0;
  std::atomic<bool> stop = false;
  std::thread sender([&] { SendConstantRows(call, spec, sent, stop); });
  int64_t early = -1;  // after it has paused for a while
  for (int looks = 0; looks < 20 && early != sent; ++looks) {
    early = sent;
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  EXPECT_EQ(sent, early) << "the sender is held up";
  EXPECT_LT(early * wire::TensorRowBytes(spec, v1::TENSOR_K), 128 * kMiB);
  EXPECT_LT(watch.coordinator_peak(), 300 * kMiB);
  for (const pid_t pid : workers) kill(pid, SIGCONT);
  EXPECT_TRUE(Await([&] { return sent > early; })) << "and goes on";
  stop = true;
  call.Cancel();
  sender.join();
  EXPECT_FALSE(call.Finish().ok());
}

}  // namespace
}  // namespace hilbert_ring::testing
