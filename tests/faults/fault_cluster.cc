#include "tests/faults/fault_cluster.h"

namespace hilbert_ring::testing {

absl::StatusOr<std::unique_ptr<Cluster>> StartFaultCluster(ClusterOptions options) {
  options.arguments.insert(options.arguments.begin(), "--warm-up=false");
  options.spread = false;
  options.log_files = true;
  return Cluster::Start(options);
}

}  // namespace hilbert_ring::testing
