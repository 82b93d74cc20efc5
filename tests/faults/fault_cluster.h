#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

// Starts a cluster whose logs go to files. It has no warm-up job, which a fault could hit in place
// of the test's job.
absl::StatusOr<std::unique_ptr<Cluster>> StartFaultCluster(ClusterOptions options);

}  // namespace hilbert_ring::testing
