// A plan as tables, for people.
#pragma once

#include <cstdint>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::cli {

// On stdout. tokens: of the job.
void PrintPlan(int64_t tokens, const v1::PlanResponse& plan);

}  // namespace hilbert_ring::cli
