#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

// The warm-up job is off: it would meet a fault first. Logs go to files.
absl::StatusOr<std::unique_ptr<Cluster>> StartFaultCluster(ClusterOptions options);

}  // namespace hilbert_ring::testing
