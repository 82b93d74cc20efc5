// A whole job by the definition, each row with its tolerance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/reference/deviation.h"
#include "engine/spec/job_spec.h"
#include "tests/engine/run_engine.h"

namespace hilbert_ring::testing {

struct ExpectedRows {
  std::vector<ExpectedRow> rows;  // by token
  int64_t judged = 0;             // rows of which all heads are
};

// Of inputs as the job's type rounds them.
absl::StatusOr<ExpectedRows> ExpectRows(const JobSpec& spec, const EngineInputs& inputs);

// Inputs as the job's type rounds them.
EngineInputs Rounded(const JobSpec& spec, EngineInputs inputs);

// Empty when all that is judged is within its tolerance, else what is furthest off.
std::string Mismatch(const JobSpec& spec, const EngineResult& result, const ExpectedRows& expected);

}  // namespace hilbert_ring::testing
