// The options of a JobRun.
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

struct JobRunOptions {  // the objects behind pointers outlive the run
  std::string job_id;
  const Plan* plan = nullptr;
  JobWork* work = nullptr;
  Members members;      // by rank
  std::string ring_id;  // empty: no exchange
  int64_t generation = 0;
  bool want_lse = false;
  bool want_trace = false;  // spans in the workers' reports
  std::string traceparent;  // the caller's, or empty
  int lane = 0;
  std::chrono::milliseconds compute_timeout{0};
  std::chrono::milliseconds stall_timeout{0};  // of all workers
  bool share_memory = true;
  SharedMemoryPool* shards = nullptr;
  KeptThreads* threads = nullptr;
  JobMemory* copies = nullptr;     // for copies of workers' rows; null: no copies
  HeldRows* held = nullptr;        // of the previous execution
  Delivered* delivered = nullptr;  // slots that the client has; the run adds to them
  const JobRows* rows = nullptr;
  OpenRuns* runs = nullptr;  // passes workers' heartbeats on
  const TimeSource* time = &SystemTime();
  // Thread-safe. False if the client has not made room within `patience`; an error ends the job.
  // `owner` keeps the payload alive.
  std::function<absl::StatusOr<bool>(
      int rank, const v1::OutputChunk& chunk, std::string_view payload,
      const std::shared_ptr<const void>& owner, Clock::duration patience)>
      output;
  // fraction: mean of the workers. layer: computed by all. Seldom called; does not block.
  std::function<void(double fraction, int64_t layer)> progress;
};

}  // namespace hilbert_ring::server
