// Figures of a worker's report.
#pragma once

#include "hilbert_ring/v1/worker.pb.h"
#include "server/metrics/metrics.h"

namespace hilbert_ring::server {

WorkerShare ShareOf(const v1::WorkerReport& worker);

}  // namespace hilbert_ring::server
