// What all jobs of a worker share.
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
  // A job whose rows are awaited and of which the coordinator says nothing for so long ends.
  const std::chrono::milliseconds feed_timeout;
  // Told of an error that a GPU does not recover from within its process: what it hung on may still
  // be written to, and every later call fails. Null: not told.
  std::function<void(const absl::Status&)> device_broken = nullptr;
  WorkerMetrics* metrics = nullptr;  // null: nobody counts
  // The work of a run with `encode`, on a device of so many threads. Null: the worker has no
  // models.
  std::function<absl::StatusOr<std::unique_ptr<RunWork>>(const v1::RunOpen& open, int threads)>
      make_encode = nullptr;
  std::string data_root = {};  // of files that jobs name; empty: none
  Lanes lanes = {};
  ActiveCalls calls = {};
  KeptThreads threads = {};
};

}  // namespace hilbert_ring::server
