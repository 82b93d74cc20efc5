// How a job is planned over a number of workers: what sizes and fits are found with.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "engine/plan/plan.h"

namespace hilbert_ring::server {

// Errors of MakePlan; CANCELLED soon after the planner's maker has said so.
using Planner = std::function<absl::StatusOr<Plan>(int workers)>;

// Of an attention job. cancelled may be null.
inline Planner PlannerOf(const JobSpec& spec, std::function<bool()> cancelled = nullptr) {
  return [spec, cancelled = std::move(cancelled)](int workers) {
    return MakePlan(spec, workers, cancelled);
  };
}

}  // namespace hilbert_ring::server
