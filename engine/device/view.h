// Strided views of rows in device memory. Strides are in elements, offsets are 64-bit.
#pragma once

#include <cstdint>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// [batch, rows, heads, dim] with the last stride 1; element (b, i, h, x) is at
// data + b * batch_stride + i * row_stride + h * head_stride + x. Does not own its memory.
struct ConstView {
  const void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

struct MutableView {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// Log-sum-exps [batch, rows, heads], float32, natural logarithm.
struct LseView {
  float* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// Softmax of merged rows, [batch, rows, heads], float32: the greatest score before the scale (of a
// negative scale: of the negated scores), and the sum of exp(|scale| * (score - greatest)). They
// stay apart until all is merged: differences of maxima, and so the parts' weights, are exact at
// any size. (-inf, 0) is the identity; a NaN sum makes the row NaN.
struct StateView {
  float* max = nullptr;
  float* sum = nullptr;
  int64_t batch_stride = 0;  // strides of both
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// Original token positions [batch, rows].
struct PositionsView {
  const int64_t* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

// Coordinates [batch, rows, axes] that biases measure.
struct CoordinatesView {
  const float* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

}  // namespace hilbert_ring
