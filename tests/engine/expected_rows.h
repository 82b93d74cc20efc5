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
  std::vector<ExpectedRow> rows;  // of `tokens`
  int64_t judged = 0;             // rows with all heads judged
};

// Expects all rows, or those of some tokens. Inputs are rounded to the job's type first.
absl::StatusOr<ExpectedRows> ExpectRows(const JobSpec& spec, const EngineInputs& inputs);
absl::StatusOr<ExpectedRows> ExpectRows(const JobSpec& spec, const EngineInputs& inputs,
                                        std::vector<int64_t> tokens);

EngineInputs Rounded(const JobSpec& spec, EngineInputs inputs);

// Empty, or the worst number outside its tolerance.
std::string Mismatch(const JobSpec& spec, const EngineResult& result, const ExpectedRows& expected);

}  // namespace hilbert_ring::testing
