// Numbers of a job's tensors as they lie in memory, in float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// values[i] = the number at index i of `from`, which need not be aligned.
void WidenNumbers(DataType dtype, const std::byte* from, std::span<double> values);

}  // namespace hilbert_ring
