// A job's rows by the definition, each with its tolerance.
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
  std::vector<int64_t> tokens;
  std::vector<ExpectedRow> rows;  // of these tokens
  int64_t judged = 0;             // rows of which all heads are
};

// Of inputs as the job's type rounds them: all rows, or those of some tokens.
absl::StatusOr<ExpectedRows> ExpectRows(const JobSpec& spec, const EngineInputs& inputs);
absl::StatusOr<ExpectedRows> ExpectRows(const JobSpec& spec, const EngineInputs& inputs,
                                        std::vector<int64_t> tokens);

// Inputs as the job's type rounds them.
EngineInputs Rounded(const JobSpec& spec, EngineInputs inputs);

// Empty when all that is judged is within its tolerance, else what is furthest off.
std::string Mismatch(const JobSpec& spec, const EngineResult& result, const ExpectedRows& expected);

}  // namespace hilbert_ring::testing
