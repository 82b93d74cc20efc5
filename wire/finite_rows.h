// Detects rows with a NaN or an infinity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/spec/job_spec.h"

namespace hilbert_ring::wire {

// row: contiguous numbers of this type.
bool IsFinite(DataType type, const std::byte* row, int64_t bytes);

}  // namespace hilbert_ring::wire
