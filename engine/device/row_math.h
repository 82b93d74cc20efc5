// What is done to rows of float32 and to products between them, on a device whose memory is not the
// host's: of a model's layers all but the attention.
//
//   ASSIGN_OR_RETURN(RowMath* const math, device.row_math());
//   const std::vector<ModelStep> steps{RowsTask{...}, ProductTask{...}, RowsTask{...}};
//   RETURN_IF_ERROR(math->Run(steps));   // in their order; returns when all are done
//
// All addresses are the device's. Where nothing else is said rows are dense.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// to = from W^T, [rows, out]: numbers of `dtype`, float32 (never rounded to TF32) or bfloat16; sums
// float32.
struct ProductTask {
  DataType dtype = DataType::kFloat32;  // of from and weights
  int64_t rows = 0, in = 0, out = 0;
  const void* from = nullptr;     // [rows, in]
  const void* weights = nullptr;  // [out, in]
  float* to = nullptr;            // [rows, out]; apart from the others
  void* workspace = nullptr;      // of the product alone, aligned to 256
  int64_t workspace_bytes = 0;
};

enum class Activation { kNone, kGelu };  // the exact one: x (1 + erf(x / sqrt(2))) / 2

// The weights of a norm, [dim] each: (x - mean) / sqrt(variance + epsilon) * weight + bias, of the
// biased variance.
struct DeviceNorm {
  const float* weight = nullptr;  // null: there is no norm
  const float* bias = nullptr;
  float epsilon = 0;
};

// y = activation(from + bias); residual += y, and y = residual, where there is one; to = norm(y).
// In float32, whatever the types of from and to. A row that is written is none that is read, but
// for the residual's own.
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

// to[places[r]] = from[r] + bias + position of coords[r]: a tile's row where its token's is.
struct PlaceTask {
  int64_t rows = 0, dim = 0;
  const void* from = nullptr;  // [rows, dim]
  DataType from_dtype = DataType::kFloat32;
  const float* bias = nullptr;      // [dim], or null
  const int64_t* places = nullptr;  // [rows], apart from each other
  float* to = nullptr;              // [.., dim]

  // 2-D sine-cosine positions, as engine/model/files/grid_positions.h; null: there are none.
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

// Used by one thread at a time, the one that uses the device.
class RowMath {
 public:
  virtual ~RowMath() = default;

  // Each step sees what those before it wrote. INVALID_ARGUMENT, naming the field, for a step that
  // is out of range; nothing is computed then. INTERNAL where the device or its library fails,
  // which names the step.
  virtual absl::Status Run(std::span<const ModelStep> steps) = 0;
};

// INVALID_ARGUMENT, naming the field, its value and the limit.
absl::Status CheckStep(const ModelStep& step);

// "a product of 5,000 x 768 with 3,072 x 768 in bfloat16", for messages.
std::string NameOf(const ModelStep& step);

}  // namespace hilbert_ring
