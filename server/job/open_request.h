// The first message of a run to a worker.
#pragma once

#include <cstdint>

#include "hilbert_ring/v1/worker.pb.h"
#include "server/job/job_run_options.h"
#include "server/job/worker_shard.h"

namespace hilbert_ring::server {

// shard: the rank's, made. delivered: outputs to omit.
v1::RunRequest OpenRequest(const JobRunOptions& options, int rank, const WorkerShard& shard,
                           uint64_t run, const Delivered& delivered);

}  // namespace hilbert_ring::server
