// What is done to rows of float32 between the products of an encoder, by the vectors of the
// machine.
#pragma once

#include <cstdint>

#include "engine/model/files/layer_norm.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// All take one row of `dim` elements. Rows are the caller's; a row that is written overlaps no
// other unless it is the same.
struct RowKernels {
  // to = (from - mean) / sqrt(variance + epsilon) * weight + bias, of the biased variance. `to` may
  // be `from`.
  void (*norm)(const float* from, const NormView& norm, int64_t dim, float* to);

  // row = 0.5 row (1 + erf(row / sqrt(2))), within 1e-6 (1 + |row|).
  void (*gelu)(float* row, int64_t dim);

  // row += add.
  void (*add)(const float* add, float* row, int64_t dim);

  // Element by element between the data types, rounding to nearest even.
  void (*widen)(DataType dtype, const void* from, int64_t dim, float* to);
  void (*narrow)(const float* from, int64_t dim, DataType dtype, void* to);
};

// Of the best instruction set of this machine, or of the one that all machines have.
const RowKernels& BestRowKernels();
const RowKernels& BaselineRowKernels();

}  // namespace hilbert_ring
