// What a run of a job is given. job_run.h says what it does with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/plan/plan.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/cluster/membership.h"
#include "server/cluster/open_runs.h"
#include "server/job/job_rows.h"
#include "server/job/job_work.h"
#include "server/process/kept_threads.h"
#include "server/process/time_source.h"
#include "server/rows/held_rows.h"
#include "server/rows/shared_memory_pool.h"
#include "server/shard/job_memory.h"
#include "server/shard/output_rows.h"

namespace hilbert_ring::server {

// What is pointed to outlives the run.
struct JobRunOptions {
  std::string job_id;
  const Plan* plan = nullptr;
  JobWork* work = nullptr;  // that the plan is of
  Members members;          // by rank
  std::string ring_id;      // empty: the plan exchanges nothing
  int64_t generation = 0;
  bool want_lse = false;
  bool want_trace = false;  // the workers' reports have spans
  std::string traceparent;  // the caller's; empty: none
  int lane = 0;             // of the workers
  std::chrono::milliseconds compute_timeout{0};
  std::chrono::milliseconds stall_timeout{0};  // without progress of any worker
  bool share_memory = true;
  SharedMemoryPool* shards = nullptr;
  KeptThreads* threads = nullptr;
  JobMemory* copies = nullptr;     // what copies of workers' rows may take; null: there are none
  HeldRows* held = nullptr;        // of the execution before this one
  Delivered* delivered = nullptr;  // slots that the client has; the run adds to it
  const RowSource* source = nullptr;
  const OutputSink* sink = nullptr;
  OpenRuns* runs = nullptr;  // where it is heard of while it is open
  const TimeSource* time = &SystemTime();
  // Called by several threads. False when the client has not made room for it within `patience`. An
  // error ends the job. The payload lies beside the chunk and lives as long as its owner.
  std::function<absl::StatusOr<bool>(
      int rank, const v1::OutputChunk& chunk, std::string_view payload,
      const std::shared_ptr<const void>& owner, Clock::duration patience)>
      output;
  // Mean over the workers, and the layers of an encoder that all have computed; seldom, and does
  // not block.
  std::function<void(double fraction, int64_t layer)> progress;
};

}  // namespace hilbert_ring::server
