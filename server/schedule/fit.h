// Plans of a job over a number of workers, and whether its memory fits them. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "absl/status/status.h"
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

// Beside the plan's figure: messages in flight and the plan itself.
inline constexpr int64_t kRunOverheadBytes = int64_t{16} << 20;

// limits: bytes by rank. FAILED_PRECONDITION (DOES_NOT_FIT) states the need, the limit and how many
// workers of that limit hold the job. Returns the planner's CANCELLED.
absl::Status CheckFits(const Plan& plan, std::span<const int64_t> limits, const Planner& planner);

}  // namespace hilbert_ring::server
