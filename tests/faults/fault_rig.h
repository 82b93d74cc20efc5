// What the rounds of a fault test share: a cluster that is made anew now and then, its idle level,
// and jobs whose results are known.
//
//   FaultRig rig({.workers = 3});
//   for (int round = 0; round < rounds; ++round) {
//     ASSERT_EQ(rig.BeginRound(random), "");
//     const FaultJob& job = rig.job();
//     ...                                           // the job, and a fault
//     EXPECT_EQ(rig.EndRound(random), "");
//   }
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

  // A cluster at full strength, and the round's job. Empty, or what failed.
  std::string BeginRound(std::mt19937_64& random);

  Cluster& cluster() const { return *cluster_; }
  const FaultJob& job() const { return job_; }

  // The next job is right, all workers come back and all that was held is given back. Empty, or
  // what is not so.
  std::string EndRound(std::mt19937_64& random);

 private:
  std::string MakeCluster(std::mt19937_64& random);
  std::string KeepJob(std::mt19937_64& random);

  const ClusterOptions options_;
  std::unique_ptr<Cluster> cluster_;
  std::optional<IdleLevel> idle_;
  std::vector<FaultJob> kept_;  // that took the service to know
  FaultJob job_;
  int rounds_ = 0;  // of this cluster
};

}  // namespace hilbert_ring::testing
