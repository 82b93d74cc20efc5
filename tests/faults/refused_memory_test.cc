// Workers on the coordinator's host that turn its memory down, as those in other containers and on
// GPUs do: what it offered is given back, and rows are held only within --copy-memory.
#include <algorithm>
#include <thread>

#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"
#include "tests/support/process_account.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The most shared memory that the coordinator held while the job ran.
int64_t SharedPeak(const std::string& copy_memory) {
  const auto cluster = StartFaultCluster({.workers = 1,
                                          .place = WorkerPlace::kUnshared,
                                          .arguments = {"--copy-memory=" + copy_memory}})
                           .value();
  int64_t peak = 0;
  std::jthread watch([&, pid = cluster->coordinator()](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      peak = std::max(peak, AccountOf(pid).shared_memory_bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const FaultJob job = MakeZeroJob(65'536, 4, 32, 64);  // 96 MiB of rows, little compute
  const JobEnd end = RunJob(cluster->address(), job, {.deadline = absl::Seconds(60)});
  watch = {};
  EXPECT_EQ(end.verdict, Verdict::kRight) << end.what << end.status;
  return peak;
}

TEST(RefusedMemory, HoldsNoRowsBeyondTheLimitOfCopies) {
  EXPECT_LT(SharedPeak("1MiB"), 16 * kMiB);
  EXPECT_GT(SharedPeak("1GiB"), 80 * kMiB);
}

}  // namespace
}  // namespace hilbert_ring::testing
