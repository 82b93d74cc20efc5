// A golden case's answers with a tolerance for each number.
#pragma once

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"
#include "tests/engine/expected_rows.h"
#include "tests/golden/golden_case.h"

namespace hilbert_ring::testing {

EngineInputs InputsOf(const GoldenCase& golden);

// Tolerances are the case's bound, of a type that holds the inputs. Cases with exact answers
// (retrieval, level scores) need it: their rows' own tolerances are up to a million times larger.
ExpectedRows ExpectGolden(const GoldenCase& golden, DataType dtype);

// Tolerances are the smaller of the case's bound and the row's (engine/reference/row_tolerance.h).
// Only the bound applies to values that are not finite.
absl::StatusOr<ExpectedRows> ExpectGoldenRows(const GoldenCase& golden, DataType dtype);

}  // namespace hilbert_ring::testing
