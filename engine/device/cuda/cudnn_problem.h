// Tasks that cuDNN's attention accepts, and its problems for them. Pure.
//
// cuDNN takes 4-D tensors with any batch, head and row strides if the last is 1: a dilated segment
// is a view, and outputs land at their slots. It rounds results to the data's type, so it serves
// tasks that write, not tasks that merge in float32: a row's maximum and sum would belong to a
// rounded row. It takes no band but a triangle, or a window of it. If a task scales its results by
// other than a power of two, they are rounded twice, like PyTorch's attention followed by a
// division.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/attention.h"

namespace hilbert_ring::cuda {

// [batch, heads, rows, dim] and their strides, in elements: cuDNN's order.
struct CudnnTensor {
  std::array<int64_t, 4> dims{};
  std::array<int64_t, 4> strides{};
  auto operator<=>(const CudnnTensor&) const = default;
};

// A key of graphs: each has one graph and plan.
struct CudnnProblem {
  DataType dtype = DataType::kBFloat16;
  CudnnTensor q, k, v, out, stats;
  bool causal = false;        // the triangle from the upper left
  int64_t left = kUnbounded;  // causal only: keys before a row's last that it sees
  float scale = 1.0f;
  auto operator<=>(const CudnnProblem&) const = default;
};

// A part of a task with few enough scores for one call, and within 32-bit offsets.
struct CudnnCall {
  CudnnProblem problem;
  int64_t batch = 0;  // the first of the task's batches that it computes
  int64_t row = 0;    // first query row
};

// Returns the reason that cuDNN does not take the task; empty if it does.
std::string WhyNotCudnn(const AttentionTask& task);

// Returns all calls of a task that cuDNN takes; empty if they cannot be small enough. most_scores:
// of one call, at least one row's. Each call has a power of two of the task's batches, because each
// number of batches needs a graph: lengths of a job share few.
std::vector<CudnnCall> CudnnCalls(const AttentionTask& task, int64_t most_scores);

// The call's unmasked scores, as if tiles had one row and one column.
int64_t ScoresOf(const CudnnProblem& problem);

}  // namespace hilbert_ring::cuda
