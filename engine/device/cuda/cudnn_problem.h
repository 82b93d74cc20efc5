// Which tasks cuDNN's attention takes, and how it is asked for them. Pure.
//
// cuDNN takes 4-D tensors with any batch, head and row strides as long as the last is 1, so that a
// dilated segment is a view and outputs land at their slots. It rounds its results to the data's
// type, so that it serves tasks that write, not those that merge in float32: though a row's maximum
// and sum can be asked for instead of the log-sum-exp, they would belong to a rounded row. Where a
// task scales its results by other than a power of two they are rounded twice, as PyTorch's are
// when a division follows its attention.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/attention.h"

namespace hilbert_ring::cuda {

// [batch, heads, rows, dim] and their strides, in elements, as cuDNN names them.
struct CudnnTensor {
  std::array<int64_t, 4> dims{};
  std::array<int64_t, 4> strides{};
  auto operator<=>(const CudnnTensor&) const = default;
};

// A graph and its plan are made once for each.
struct CudnnProblem {
  DataType dtype = DataType::kBFloat16;
  CudnnTensor q, k, v, out, stats;
  bool causal = false;  // the triangle from the upper left
  float scale = 1.0f;
  auto operator<=>(const CudnnProblem&) const = default;
};

// A part of a task, few enough scores for one call and small enough for 32-bit offsets.
struct CudnnCall {
  CudnnProblem problem;
  int64_t batch = 0;  // first of the task's that it computes
  int64_t row = 0;    // first query row
};

// Why cuDNN does not take the task; empty when it does.
std::string WhyNotCudnn(const AttentionTask& task);

// All calls of a task that cuDNN takes. most_scores: of one call, at least one row's. Each has a
// power of two of the task's batches: a graph is made for each number of them, and so all lengths
// of a job share few. Empty when the task cannot be cut so finely.
std::vector<CudnnCall> CudnnCalls(const AttentionTask& task, int64_t most_scores);

// Scores of the call that are not masked, counted as if tiles had one row and one column.
int64_t ScoresOf(const CudnnProblem& problem);

}  // namespace hilbert_ring::cuda
