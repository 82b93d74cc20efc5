// Bounds the time and memory of planning: a valid spec can have billions of parts (a million
// sequences, 64 branches, 4,096 phases each).
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/plan/exchange.h"
#include "engine/plan/pattern.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Runs before planning. OUT_OF_RANGE, naming sequences and branches.
absl::Status CheckSequences(const JobSpec& spec);

// Runs before the costs of segments are counted. OUT_OF_RANGE, naming the steps.
absl::Status CheckPlanSize(const JobSpec& spec, const std::vector<Phase>& phases,
                           const Segments& segments);

}  // namespace hilbert_ring
