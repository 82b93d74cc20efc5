// IdleLevel measures an idle service's resources. Later excess shows leftovers of jobs.
//
//   const IdleLevel idle(cluster);            // after a few jobs
//   ...                                       // jobs and faults
//   EXPECT_EQ(idle.AwaitReturn(limit), "");
#pragma once

#include <chrono>
#include <string>

#include "tests/faults/fault_cluster.h"
#include "tests/support/process_account.h"

namespace hilbert_ring::testing {

class IdleLevel {
 public:
  explicit IdleLevel(Cluster& cluster);

  // Waits until no job, no memory of jobs, no zombie and no further process, descriptor or thread
  // is left. Returns the leftovers at the limit.
  std::string AwaitReturn(std::chrono::milliseconds limit) const;

 private:
  std::string LeftOver() const;

  Cluster& cluster_;
  ProcessAccount coordinator_;
  int worker_descriptors_ = 0, worker_threads_ = 0;  // maximum over workers
};

}  // namespace hilbert_ring::testing
