// The plan of a job: a pure function of the spec and the number of workers.
//
//   auto plan = MakePlan(spec, 4).value();             // coordinator: admission, routing of rows
//   plan.shards.Find(slot).rank;                       // who owns a slot
//   plan.costs.workers[2].resident_bytes();            // what it takes
//   auto same = MakePlan(spec, plan.shards).value();   // worker: the same plan from its shards
//
// The same code admits a job, runs it, explains it and predicts it for any number of workers. Its
// size is O(workers x branches x offsets + sequences), never O(segments).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/plan/cost.h"
#include "engine/plan/exchange.h"
#include "engine/plan/pattern.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

struct Plan {
  JobSpec spec;
  RowSizes rows;  // of the tensors in a shard: the spec's, unless an encoder's job says otherwise
  Shards shards;
  bool mirrored = false;
  std::vector<Phase> phases;
  Segments segments;
  Costs costs;
};

inline constexpr int kMaxWorkers = 4096;

// INVALID_ARGUMENT / OUT_OF_RANGE: the spec (see Validate), workers outside [1, kMaxWorkers], or a
// pattern of so many parts that planning it would take more than seconds (engine/plan/plan_size.h).
// Tries the cuts that could pay (plain, and mirrored for causal jobs without an ordering) and takes
// the one whose busiest worker is estimated to finish first. CANCELLED soon after `cancelled`,
// which may be null, has said so.
absl::StatusOr<Plan> MakePlan(const JobSpec& spec, int workers,
                              std::function<bool()> cancelled = nullptr);

// The plan for given shards.
absl::StatusOr<Plan> MakePlan(const JobSpec& spec, Shards shards);

}  // namespace hilbert_ring
