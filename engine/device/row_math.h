// Operations on rows of float32, and products between them, on a device whose memory is not the
// host's: a model's layers except the attention.
//
//   ASSIGN_OR_RETURN(RowMath* const math, device.row_math());
//   const std::vector<ModelStep> steps{RowsTask{...}, ProductTask{...}, RowsTask{...}};
//   RETURN_IF_ERROR(math->Run(steps));   // in their order; returns when all are done
//
// All addresses are the device's. Rows are dense unless stated otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// to = from W^T, [rows, out], in float32 (never TF32) or bfloat16; sums are float32.
struct ProductTask {
  DataType dtype = DataType::kFloat32;  // of from and weights
  int64_t rows = 0, in = 0, out = 0;
  const void* from = nullptr;     // [rows, in]
  const void* weights = nullptr;  // [out, in]
  float* to = nullptr;            // [rows, out]; overlaps no other
  void* workspace = nullptr;      // of the product alone, aligned to 256
  int64_t workspace_bytes = 0;
};

enum class Activation { kNone, kGelu };  // exact: x (1 + erf(x / sqrt(2))) / 2

// (x - mean) / sqrt(variance + epsilon) * weight + bias, [dim], with the biased variance.
struct DeviceNorm {
  const float* weight = nullptr;  // null: no norm
  const float* bias = nullptr;
  float epsilon = 0;
};

// y = activation(from + bias); with a residual, residual += y and y = residual; to = norm(y). In
// float32 at any types of from and to. No written row is read, except the residual's own.
struct RowsTask {
  int64_t rows = 0, dim = 0;
  const void* from = nullptr;  // row r is at from + r * from_stride elements
  DataType from_dtype = DataType::kFloat32;
  int64_t from_stride = 0;
  const float* bias = nullptr;  // [dim], or null
  Activation activation = Activation::kNone;
  float* residual = nullptr;  // [rows, dim], or null
  DeviceNorm norm;
  void* to = nullptr;  // [rows, dim], or null
  DataType to_dtype = DataType::kFloat32;
};

// to[places[r]] = from[r] + bias + position of coords[r]: puts a tile's row at its token's place.
struct PlaceTask {
  int64_t rows = 0, dim = 0;
  const void* from = nullptr;  // [rows, dim]
  DataType from_dtype = DataType::kFloat32;
  const float* bias = nullptr;      // [dim], or null
  const int64_t* places = nullptr;  // [rows], all different
  float* to = nullptr;              // [.., dim]

  // 2-D sine-cosine positions, as in engine/model/files/grid_positions.h; null: no positions.
  const double* coords = nullptr;       // [rows, 2]: x and y
  const double* frequencies = nullptr;  // [dim / 4]
  double tile_size = 0;
};

// to[x] += the sum of from[r, x] over the rows, in float64.
struct SumTask {
  int64_t rows = 0, dim = 0;
  const float* from = nullptr;  // [rows, dim]
  double* to = nullptr;         // [dim]
};

using ModelStep = std::variant<ProductTask, RowsTask, PlaceTask, SumTask>;

// Used by the thread that uses the device.
class RowMath {
 public:
  virtual ~RowMath() = default;

  // Steps see the results of earlier steps. INVALID_ARGUMENT with the field: a step is out of
  // range, and no step is computed. INTERNAL with the step's name: the device or its library
  // failed.
  virtual absl::Status Run(std::span<const ModelStep> steps) = 0;
};

// INVALID_ARGUMENT, naming the field, its value and the limit.
absl::Status CheckStep(const ModelStep& step);

// "a product of 5,000 x 768 with 3,072 x 768 in bfloat16": a part of messages.
std::string NameOf(const ModelStep& step);

}  // namespace hilbert_ring
