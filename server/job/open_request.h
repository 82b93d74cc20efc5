// The first message to a worker of a run: what the job is, which part of it is the worker's, and
// how its rows come.
#pragma once

#include <cstdint>

#include "hilbert_ring/v1/worker.pb.h"
#include "server/job/job_run_options.h"
#include "server/job/worker_shard.h"

namespace hilbert_ring::server {

// shard: the rank's, made. run: this run's number. delivered: what is left out of the outputs.
v1::RunRequest OpenRequest(const JobRunOptions& options, int rank, const WorkerShard& shard,
                           uint64_t run, const Delivered& delivered);

}  // namespace hilbert_ring::server
