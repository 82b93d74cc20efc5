// Coordinates that the biases of a job measure, from an unauthenticated caller.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace hilbert_ring {

// values: rows of `axes` numbers, the first of them row first_row of the job. OUT_OF_RANGE: a
// number is not NaN and above kMostBiasCoordinate in magnitude.
absl::Status CheckBiasCoordinates(std::span<const float> values, int axes, int64_t first_row);

}  // namespace hilbert_ring
