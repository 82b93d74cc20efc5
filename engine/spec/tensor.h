// The tensors of a job, and what a row of each takes.
#pragma once

#include <cstdint>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

enum class TensorKind { kQ, kK, kV, kOut, kLse };
inline constexpr int kTensorKinds = 5;

// Bytes of one token's row, all heads.
int64_t RowBytes(const JobSpec& spec, TensorKind tensor);

}  // namespace hilbert_ring
