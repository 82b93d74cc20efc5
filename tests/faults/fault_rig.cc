#include "tests/faults/fault_rig.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;

// A new cluster keeps rounds short: the coordinator delays each further restart of a worker.
constexpr int kRoundsOfACluster = 8;
constexpr size_t kKeptJobs = 6;
constexpr int kWarmUpJobs = 6;
constexpr milliseconds kRestoreLimit{30'000};
constexpr milliseconds kIdleLimit{15'000};
constexpr absl::Duration kNextJobLimit = absl::Seconds(30);

}  // namespace

FaultRig::~FaultRig() {
  idle_.reset();
  cluster_.reset();
}

std::string FaultRig::MakeCluster(std::mt19937_64& random) {
  idle_.reset();
  if (cluster_ != nullptr) {
    const absl::Status stopped = cluster_->Stop();
    if (!stopped.ok()) {
      return absl::StrCat(stopped.ToString(), "; logs are in ", cluster_->KeepLogs());
    }
  }
  auto cluster = StartFaultCluster(options_);
  if (!cluster.ok()) return cluster.status().ToString();
  cluster_ = *std::move(cluster);
  rounds_ = 0;
  for (int i = 0; i < kWarmUpJobs; ++i) {
    int tries = 0;
    std::string failed = RunNextJob(cluster_->address(), random, kNextJobLimit, tries);
    if (!failed.empty()) return failed;
  }
  std::string failed = KeepJob(random);
  if (!failed.empty()) return failed;
  idle_.emplace(*cluster_);
  return "";
}

std::string FaultRig::KeepJob(std::mt19937_64& random) {
  if (kept_.size() == kKeptJobs) return "";
  auto job = kept_.size() % 3 == 1 ? MakeWideJob(random, cluster_->address())
                                   : MakeMiddleJob(random, cluster_->address());
  if (!job.ok()) return job.status().ToString();
  kept_.push_back(*std::move(job));
  return "";
}

std::string FaultRig::BeginRound(std::mt19937_64& random) {
  if (cluster_ == nullptr || rounds_ == kRoundsOfACluster) {
    std::string failed = MakeCluster(random);
    if (!failed.empty()) return failed;
  }
  ++rounds_;
  if (random() % 10 < 4) {
    auto job = MakeSmallJob(random);
    if (!job.ok()) return job.status().ToString();
    job_ = *std::move(job);
  } else {
    if (random() % 2 == 0) {
      std::string failed = KeepJob(random);
      if (!failed.empty()) return failed;
    }
    job_ = kept_[random() % kept_.size()];
  }
  return "";
}

std::string FaultRig::EndRound(std::mt19937_64& random) {
  const auto start = std::chrono::steady_clock::now();
  int tries = 0;
  std::string failed = RunNextJob(cluster_->address(), random, kNextJobLimit, tries);
  if (failed.empty()) {
    const absl::Status restored = cluster_->Restore(kRestoreLimit);
    if (!restored.ok()) failed = restored.ToString();
  }
  if (failed.empty()) failed = idle_->AwaitReturn(kIdleLimit);
  if (!failed.empty()) absl::StrAppend(&failed, " logs are in ", cluster_->KeepLogs());
  std::printf("  back to idle in %.2f s\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return failed;
}

}  // namespace hilbert_ring::testing
