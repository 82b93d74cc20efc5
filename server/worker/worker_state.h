// State that all jobs of a worker share.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/metrics/worker_metrics.h"
#include "server/process/kept_threads.h"
#include "server/shard/job_memory.h"
#include "server/worker/active_calls.h"
#include "server/worker/lane.h"
#include "server/worker/ring_table.h"
#include "server/worker/run_work.h"

namespace hilbert_ring::server {

struct WorkerState {
  JobMemory memory;
  RingTable rings;
  const bool share_memory = true;
  // A run ends after this silence of a coordinator that owes it rows, or RunOpen.
  const std::chrono::milliseconds feed_timeout, open_timeout = std::chrono::seconds(5);
  // Makes the work of a run with `encode`, on a device of `threads`. Null: no models.
  std::function<absl::StatusOr<std::unique_ptr<RunWork>>(const v1::RunOpen& open, int threads)>
      make_encode = nullptr;
  std::string data_root = {};  // of files passed by path; empty: no files
  Lanes lanes = {};
  ActiveCalls calls = {};
  WorkerMetrics metrics = {};
  KeptThreads threads = {};
};

}  // namespace hilbert_ring::server
