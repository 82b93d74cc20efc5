// What an idle service holds, so that whatever a job leaves behind is seen.
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
  // Measures the cluster, which must be at its full strength and outlive the object. Waits until
  // its threads and descriptors no longer change.
  explicit IdleLevel(Cluster& cluster);

  // Waits until all that jobs held is given back: no job runs or waits, workers' memory for jobs is
  // 0, no memory is shared, processes, descriptors and threads are at the idle level, nobody is a
  // zombie. What is left over at the limit; empty when nothing is.
  std::string AwaitReturn(std::chrono::milliseconds limit) const;

 private:
  std::string LeftOver() const;

  Cluster& cluster_;
  ProcessAccount coordinator_;
  int worker_descriptors_ = 0, worker_threads_ = 0;  // of a worker, at most
};

}  // namespace hilbert_ring::testing
