// What a run computes on the rows of its shard: attention here, an encoder in encode_run.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/executor.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/job_shape.h"

namespace hilbert_ring::server {

// What it tells while it computes.
struct WorkControl {
  ExecuteControl execute;
  std::function<void(int64_t layer)> layer;  // of an encoder: it was computed
  // As of EncoderControl; empty: nobody wants them.
  std::function<void(int64_t layer, SpanKind kind, int64_t step, Deadline begin, Deadline end)>
      attention_span;
  std::function<void(int64_t layer, Deadline begin, Deadline end)> rows_span;
};

class RunWork {
 public:
  virtual ~RunWork() = default;

  const JobShape& shape() const { return shape_; }

  // Of the job, with what it takes and does in all.
  const Plan& plan() const { return plan_; }
  int rank() const { return rank_; }
  const WorkerCost& cost() const { return plan_.costs.workers[rank_]; }

  // Before it has the device: reads what it needs of files, which may take for ever. `cancelled`
  // may be asked meanwhile.
  virtual absl::Status Read(const std::function<bool()>& cancelled) { return absl::OkStatus(); }

  // On the device: takes what it needs beside the shard. RESOURCE_EXHAUSTED without memory.
  // `cancelled` may be asked meanwhile.
  virtual absl::Status Prepare(Device& device, const std::function<bool()>& cancelled) {
    return absl::OkStatus();
  }

  // Errors of the engine's Execute. The communicator may be null where the plan has no exchange.
  virtual absl::StatusOr<Figures> Execute(ShardStore& store, Device& device,
                                          Communicator* communicator, int64_t first_step,
                                          const WorkControl& control) = 0;

  // After that: this rank's part of what the coordinator puts together, in messages.
  virtual std::vector<v1::PooledSums> TakePooled() { return {}; }

 protected:
  RunWork(JobShape shape, Plan plan, int rank)
      : shape_(std::move(shape)), plan_(std::move(plan)), rank_(rank) {}

 private:
  const JobShape shape_;
  const Plan plan_;
  const int rank_;
};

// The shards of a job that RunOpen says.
Shards ShardsOf(const v1::RunOpen& open);

// Of a RunOpen with a spec: INVALID_ARGUMENT and OUT_OF_RANGE where spec, shards or rank are wrong.
absl::StatusOr<std::unique_ptr<RunWork>> MakeAttentionRun(const v1::RunOpen& open);

}  // namespace hilbert_ring::server
