#include "engine/device/cuda/cudnn_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/device/score_unit.h"

namespace hilbert_ring::cuda {
namespace {

constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max();
constexpr int64_t kAlignment = 16;      // bytes
constexpr int64_t kMostLeft = 1 << 23;  // cuDNN holds bounds in float32

template <typename View>
bool RowsAreAligned(const View& view, int64_t element_bytes) {
  return reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0 &&
         view.batch_stride * element_bytes % kAlignment == 0 &&
         view.row_stride * element_bytes % kAlignment == 0 &&
         view.head_stride * element_bytes % kAlignment == 0;
}

template <typename View>
CudnnTensor TensorOf(const View& view, int64_t batch, int64_t heads, int64_t rows, int64_t dim) {
  CudnnTensor tensor{.dims = {batch, heads, rows, dim},
                     .strides = {view.batch_stride, view.head_stride, view.row_stride, 1}};
  // The stride of one segment, head or row may be 0, which cuDNN takes for broadcast.
  for (int i = 2; i >= 0; --i) {
    if (tensor.dims[i] == 1 && tensor.strides[i] == 0) {
      tensor.strides[i] = tensor.dims[i + 1] * tensor.strides[i + 1];
    }
  }
  return tensor;
}

// Offset of the last element, plus one.
int64_t Span(const CudnnTensor& tensor) {
  int64_t span = 1;
  for (int i = 0; i < 4; ++i) span += (tensor.dims[i] - 1) * tensor.strides[i];
  return span;
}

CudnnProblem ProblemOf(const AttentionTask& task, int64_t batch, int64_t rows) {
  return {.dtype = task.dtype,
          .q = TensorOf(task.q, batch, task.heads, rows, task.head_dim),
          .k = TensorOf(task.k, batch, 1, task.key_rows, task.head_dim),
          .v = TensorOf(task.v, batch, 1, task.key_rows, task.value_dim),
          .out = TensorOf(task.out, batch, task.heads, rows, task.value_dim),
          .stats = TensorOf(task.lse, batch, task.heads, rows, 1),
          .causal = task.mask == Mask::kDiagonal,
          .left = task.mask == Mask::kDiagonal ? task.left : kUnbounded,
          .scale = task.scale};
}

bool OffsetsFit(const CudnnProblem& problem) {
  for (const CudnnTensor* tensor :
       {&problem.q, &problem.k, &problem.v, &problem.out, &problem.stats}) {
    if (Span(*tensor) > kMostElements) return false;
  }
  return true;
}

}  // namespace

std::string WhyNotCudnn(const AttentionTask& task) {
  if (task.dtype == DataType::kFloat32) return "it takes 16-bit types";
  if (task.result != Result::kWrite) return "it rounds results, which are merged in float32";
  if (task.out_dtype != task.dtype) return "it writes the type that it reads";
  if (task.lse.data == nullptr) return "it writes the log-sum-exp";
  if (task.mask == Mask::kPositions) return "the mask is no triangle";
  if (task.mask == Mask::kDiagonal && task.diagonal_shift != 0) {
    return absl::StrCat("the triangle is shifted by ", task.diagonal_shift);
  }
  if (task.mask == Mask::kDiagonal && task.right != 0) return "rows see keys after their own";
  if (task.mask == Mask::kDiagonal && task.left != kUnbounded) {
    if (task.left > kMostLeft) return absl::StrCat("the window is ", task.left);
    if (task.query_rows > task.key_rows) return "rows in a window are more than keys";
  }
  if (task.change.changes()) return "scores change before the mask";
  if (task.scale != 0 && !ScoreUnitOf(std::abs(task.scale)).IsOrdinary()) {
    return absl::StrCat("the scale is ", task.scale, ", at an end of float32");
  }
  if (task.batch <= 0 || task.heads <= 0 || task.query_rows <= 0 || task.key_rows <= 0) {
    return "the task is empty";
  }
  const int64_t bytes = ElementBytes(task.dtype);
  if (!RowsAreAligned(task.q, bytes) || !RowsAreAligned(task.k, bytes) ||
      !RowsAreAligned(task.v, bytes) || !RowsAreAligned(task.out, bytes)) {
    return "rows do not begin at multiples of 16 bytes";
  }
  if (!OffsetsFit(ProblemOf(task, 1, 1))) return "keys span more than 2^31 elements";
  return "";
}

std::vector<CudnnCall> CudnnCalls(const AttentionTask& task, int64_t most_scores) {
  const int64_t row_scores = task.heads * task.key_rows;
  int64_t rows = task.query_rows;
  if (task.mask == Mask::kNone) {  // each part of a triangle would need another graph
    rows = std::clamp<int64_t>(most_scores / row_scores, 1, rows);
    while (rows > 1 && !OffsetsFit(ProblemOf(task, 1, rows))) rows = (rows + 1) / 2;
  }
  if (rows > most_scores / row_scores && rows > 1) return {};
  if (!OffsetsFit(ProblemOf(task, 1, rows))) return {};
  // Powers of two, so that all numbers of segments use few graphs.
  int64_t batch = 1;
  if (rows == task.query_rows) {
    batch = std::clamp<int64_t>(most_scores / (rows * row_scores), 1, task.batch);
    batch = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch)));
    while (batch > 1 && !OffsetsFit(ProblemOf(task, batch, rows))) batch /= 2;
  }
  std::vector<CudnnCall> calls;
  for (int64_t b = 0; b < task.batch; b += batch) {
    while (batch > task.batch - b) batch /= 2;
    for (int64_t row = 0; row < task.query_rows; row += rows) {
      calls.push_back({.problem = ProblemOf(task, batch, std::min(rows, task.query_rows - row)),
                       .batch = b,
                       .row = row});
    }
  }
  return calls;
}

int64_t ScoresOf(const CudnnProblem& problem) {
  const int64_t lanes = problem.q.dims[0] * problem.q.dims[1];
  const int64_t rows = problem.q.dims[2], keys = problem.k.dims[2];
  if (!problem.causal) return lanes * rows * keys;
  const auto triangle = [](int64_t side) { return side * (side + 1) / 2; };
  const int64_t inside = std::min(rows, keys);  // in the triangle proper
  const int64_t hidden = problem.left < rows ? rows - problem.left - 1 : 0;  // side of a triangle
  return lanes * (triangle(inside) + (rows - inside) * keys - triangle(hidden));
}

}  // namespace hilbert_ring::cuda
