// The computation of a run: attention, or an encoder (encode_run.cc).
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

struct WorkControl {
  ExecuteControl execute;
  std::function<void(int64_t layer)> layer;  // of an encoder, computed
  std::function<void(int64_t layer, SpanKind kind, int64_t step, Deadline begin, Deadline end)>
      attention_span;
  std::function<void(int64_t layer, Deadline begin, Deadline end)> rows_span;
};

class RunWork {
 public:
  virtual ~RunWork() = default;

  const JobShape& shape() const { return shape_; }

  const Plan& plan() const { return plan_; }
  int rank() const { return rank_; }
  const WorkerCost& cost() const { return plan_.costs.workers[rank_]; }

  // Without the device: reads files, which may hang. May ask `cancelled`.
  virtual absl::Status Read(const std::function<bool()>& cancelled) { return absl::OkStatus(); }

  // On the device: takes memory beside the shard. RESOURCE_EXHAUSTED. May ask `cancelled`.
  virtual absl::Status Prepare(Device& device, const std::function<bool()>& cancelled) {
    return absl::OkStatus();
  }

  // Errors of the engine's Execute. communicator: null without exchange.
  virtual absl::StatusOr<Figures> Execute(ShardStore& store, Device& device,
                                          Communicator* communicator, int64_t first_step,
                                          const WorkControl& control) = 0;

  // After Execute: this rank's part of results that the coordinator puts together.
  virtual std::vector<v1::PooledSums> TakePooled() { return {}; }

 protected:
  RunWork(JobShape shape, Plan plan, int rank)
      : shape_(std::move(shape)), plan_(std::move(plan)), rank_(rank) {}

 private:
  const JobShape shape_;
  const Plan plan_;
  const int rank_;
};

Shards ShardsOf(const v1::RunOpen& open);

// INVALID_ARGUMENT and OUT_OF_RANGE for a wrong spec, shards or rank.
absl::StatusOr<std::unique_ptr<RunWork>> MakeAttentionRun(const v1::RunOpen& open);

// threads: of the device. The store outlives the run. Errors: those of ModelCatalog::Open,
// DecodeEncodeSpec and MakeEncoderPlan.
class ModelStore;
absl::StatusOr<std::unique_ptr<RunWork>> MakeEncodeRun(const v1::RunOpen& open, ModelStore& models,
                                                       int threads);

}  // namespace hilbert_ring::server
