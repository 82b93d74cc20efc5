// Checks whether a job's memory fits the workers. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "server/schedule/planner.h"

namespace hilbert_ring::server {

// Beside the plan's figure: messages in flight and the plan itself.
inline constexpr int64_t kRunOverheadBytes = int64_t{16} << 20;

// limits: bytes by rank. FAILED_PRECONDITION (DOES_NOT_FIT) states the need, the limit and how many
// workers of that limit hold the job. Returns the planner's CANCELLED.
absl::Status CheckFits(const Plan& plan, std::span<const int64_t> limits, const Planner& planner);

}  // namespace hilbert_ring::server
