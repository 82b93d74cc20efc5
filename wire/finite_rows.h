// Whether rows hold numbers alone that are neither NaN nor infinite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/spec/job_spec.h"

namespace hilbert_ring::wire {

// row: numbers of this type, side by side.
bool IsFinite(DataType type, const std::byte* row, int64_t bytes);

}  // namespace hilbert_ring::wire
