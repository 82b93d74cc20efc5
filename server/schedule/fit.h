// Whether a job's memory fits the workers. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "server/schedule/planner.h"

namespace hilbert_ring::server {

// What a worker needs beside the plan's figure: messages in flight, the plan itself.
inline constexpr int64_t kRunOverheadBytes = int64_t{16} << 20;

// limits: bytes by rank. FAILED_PRECONDITION (DOES_NOT_FIT) says what the job needs, what there is,
// and how many workers like these would hold it, by the plan's planner. CANCELLED as of that.
absl::Status CheckFits(const Plan& plan, std::span<const int64_t> limits, const Planner& planner);

}  // namespace hilbert_ring::server
