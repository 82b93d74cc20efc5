// FaultRig gives each round of a fault test an idle cluster and a job.
//
//   FaultRig rig({.workers = 3});
//   ASSERT_EQ(rig.BeginRound(random), "");
//   RunJob(rig.cluster().address(), rig.job());  // beside a fault
//   EXPECT_EQ(rig.EndRound(random), "");
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"
#include "tests/faults/idle_level.h"

namespace hilbert_ring::testing {

class FaultRig {
 public:
  explicit FaultRig(ClusterOptions options) : options_(std::move(options)) {}
  ~FaultRig();

  std::string BeginRound(std::mt19937_64& random);

  Cluster& cluster() const { return *cluster_; }
  const FaultJob& job() const { return job_; }

  // Expects that the next job is right, all workers return and all resources are free.
  std::string EndRound(std::mt19937_64& random);

 private:
  std::string MakeCluster(std::mt19937_64& random);
  std::string KeepJob(std::mt19937_64& random);

  const ClusterOptions options_;
  std::unique_ptr<Cluster> cluster_;
  std::optional<IdleLevel> idle_;
  std::vector<FaultJob> kept_;  // with results that the service computed without faults
  FaultJob job_;
  int rounds_ = 0;
};

}  // namespace hilbert_ring::testing
