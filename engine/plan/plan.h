// The plan of a job: a pure function of the spec and the number of workers.
//
//   auto plan = MakePlan(spec, 4).value();             // coordinator: admission, routing of rows
//   plan.shards.Find(slot).rank;                       // who owns a slot
//   plan.costs.workers[2].resident_bytes();            // memory of worker 2
//   auto part = MakePlan(spec, plan.shards, 2).value();   // worker: its part, from the shards
//
// The same code admits, runs, explains and predicts a job. A plan's size is O(workers x branches x
// offsets + sequences), never O(segments).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/plan/cost.h"
#include "engine/plan/exchange.h"
#include "engine/plan/pattern.h"
#include "engine/plan/rectangle.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

struct Plan {
  JobSpec spec;
  RowSizes rows;  // of the tensors in a shard; an encoder's job sets its own
  Shards shards;
  bool mirrored = false;
  std::optional<Rectangle> rectangle;  // of a rectangular job, whose shards are those of keys
  std::vector<Phase> phases;
  Segments segments;
  Costs costs;

  // The ranges of a tensor's rows: slots, or numbers of a rectangular job's queries. Not of
  // kBiasCoords.
  const Shards& ShardsOf(TensorKind tensor) const {
    const bool keys = tensor == TensorKind::kK || tensor == TensorKind::kV;
    return rectangle && !keys ? rectangle->queries : shards;
  }
};

inline constexpr int kMaxWorkers = 4096;

// Cuts the slots into one range a worker. A causal job without an ordering gets mirrored ranges if
// they save 2% of the estimated time. Errors: Validate; OUT_OF_RANGE (workers, or a pattern too
// large to plan, engine/plan/plan_size.h); CANCELLED soon after `cancelled` (may be null) returns
// true.
absl::StatusOr<Plan> MakePlan(const JobSpec& spec, int workers,
                              std::function<bool()> cancelled = nullptr);

// Plans the given shards. rank: plans the run of this rank alone, without runs of segments and
// flops of other ranks. Errors: Validate; OUT_OF_RANGE (a pattern too large to plan).
absl::StatusOr<Plan> MakePlan(JobSpec spec, Shards shards, std::optional<int> rank = std::nullopt);

// Drops lists that the rank's run does not read: runs of other ranks, and lengths of sequences.
void KeepListsOf(int rank, Plan& plan);

// Bytes that a plan's lists of runs and sequences take: WorkerCost::list_bytes after KeepListsOf.
int64_t ListBytes(const Plan& plan);

}  // namespace hilbert_ring
