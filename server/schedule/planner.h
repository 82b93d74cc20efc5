// Plans a job over a number of workers.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "engine/plan/plan.h"

namespace hilbert_ring::server {

// Returns errors of MakePlan, CANCELLED soon after `cancelled` returns true.
using Planner = std::function<absl::StatusOr<Plan>(int workers)>;

inline Planner PlannerOf(const JobSpec& spec, std::function<bool()> cancelled = nullptr) {
  return [spec, cancelled = std::move(cancelled)](int workers) {
    return MakePlan(spec, workers, cancelled);
  };
}

}  // namespace hilbert_ring::server
