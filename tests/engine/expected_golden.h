// A golden case's answers, each number with how far it may be off.
#pragma once

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"
#include "tests/engine/expected_rows.h"
#include "tests/golden/golden_case.h"

namespace hilbert_ring::testing {

EngineInputs InputsOf(const GoldenCase& golden);

// By the case's bound. The cases whose answers are exact whatever is rounded on the way need it:
// retrieval, where one key is far ahead of all others, and level scores. What their rows' numbers
// allow is up to a million times as much. Of a type that holds the inputs exactly.
ExpectedRows ExpectGolden(const GoldenCase& golden, DataType dtype);

// By the case's bound and what the rows' own numbers allow (engine/reference/row_tolerance.h),
// whichever is less. Values that are not finite are judged by the bound alone.
absl::StatusOr<ExpectedRows> ExpectGoldenRows(const GoldenCase& golden, DataType dtype);

}  // namespace hilbert_ring::testing
