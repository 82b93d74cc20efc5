// Workers on the coordinator's host that turn its memory down, as those in other containers and on
// GPUs do: what it offered is given back, and rows are held only within --copy-memory.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// 96 MiB of rows, little compute.
FaultJob WideJob() {
  FaultJob job;
  job.spec.tokens = 65'536;
  job.spec.heads = job.spec.kv_heads = 4;
  job.spec.head_dim = job.spec.value_dim = 32;
  job.spec.branches = {{.segment = 64}};
  const std::string zeros(job.spec.tokens * 4 * 32 * sizeof(float), '\0');
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    job.tensors[tensor] = zeros;
  }
  job.expected.out.assign(zeros.size() / sizeof(float), 0.0);
  return job;
}

// Of the memory that a process shares by descriptors, what there is, mapped or not.
int64_t SharedBytes(pid_t pid) {
  int64_t bytes = 0;
  std::error_code error;
  const auto folder = absl::StrCat("/proc/", pid, "/fd");
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    struct stat file = {};
    if (absl::StartsWith(target.string(), "/memfd:") && stat(entry.path().c_str(), &file) == 0) {
      bytes += 512 * file.st_blocks;
    }
  }
  return bytes;
}

// The most shared memory that the coordinator held while the job ran.
int64_t SharedPeak(const std::string& copy_memory) {
  auto cluster = FaultCluster::Start({.workers = 1,
                                      .place = WorkerPlace::kUnshared,
                                      .coordinator_arguments = {"--copy-memory=" + copy_memory}});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  if (!cluster.ok()) return -1;
  int64_t peak = 0;
  std::jthread watch([&, pid = (*cluster)->coordinator()](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      peak = std::max(peak, SharedBytes(pid));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const JobEnd end = RunJob((*cluster)->address(), WideJob(), {.deadline = absl::Seconds(60)});
  watch = {};
  EXPECT_TRUE(end.status.ok()) << end.status;
  return peak;
}

TEST(RefusedMemory, HoldsNoRowsBeyondTheLimitOfCopies) {
  EXPECT_LT(SharedPeak("1MiB"), 16 * kMiB);
  EXPECT_GT(SharedPeak("1GiB"), 80 * kMiB);
}

}  // namespace
}  // namespace hilbert_ring::testing
