// A cluster in which nothing fails but what the test breaks.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

// Without the service's own job at its start, which would meet a fault first; a job's size says
// how many workers it has. Logs are in files.
absl::StatusOr<std::unique_ptr<Cluster>> StartFaultCluster(ClusterOptions options);

}  // namespace hilbert_ring::testing
