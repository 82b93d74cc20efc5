// Row operations of an encoder in float32 between its products, with the machine's vectors.
#pragma once

#include <cstdint>

#include "engine/model/files/layer_norm.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Each takes one row of `dim` elements. `to` may be `from`; rows do not overlap otherwise.
struct RowKernels {
  // to = (from - mean) / sqrt(variance + epsilon) * weight + bias, with the biased variance.
  void (*norm)(const float* from, const NormView& norm, int64_t dim, float* to);

  // row = 0.5 row (1 + erf(row / sqrt(2))), within 1e-6 (1 + |row|).
  void (*gelu)(float* row, int64_t dim);

  void (*add)(const float* add, float* row, int64_t dim);  // row += add

  // Convert between data types, rounding to nearest even.
  void (*widen)(DataType dtype, const void* from, int64_t dim, float* to);
  void (*narrow)(const float* from, int64_t dim, DataType dtype, void* to);
};

// Kernels of the machine's best instruction set, and of the baseline that every machine has.
const RowKernels& BestRowKernels();
const RowKernels& BaselineRowKernels();

}  // namespace hilbert_ring
