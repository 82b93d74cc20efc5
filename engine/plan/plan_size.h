// Whether a job can be planned in bounded time and memory. A spec within its limits can name a
// pattern of billions of parts (a million sequences, 64 branches, 4,096 phases each), and a plan is
// made for whoever asks.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/plan/exchange.h"
#include "engine/plan/pattern.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Before anything is made of a spec. OUT_OF_RANGE, naming sequences and branches.
absl::Status CheckSequences(const JobSpec& spec);

// Before the costs of segments are counted. OUT_OF_RANGE, naming what they would take.
absl::Status CheckPlanSize(const JobSpec& spec, const std::vector<Phase>& phases,
                           const Segments& segments);

}  // namespace hilbert_ring
