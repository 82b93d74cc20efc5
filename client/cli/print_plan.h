// Prints a plan of the service.
#pragma once

#include <cstdint>

#include "client/cli/commands.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::cli {

// Prints to stdout, as tables or as JSON. tokens: of the job. Returns the exit code.
int PrintPlan(const GlobalOptions& global, int64_t tokens, const v1::PlanResponse& plan);

}  // namespace hilbert_ring::cli
