// Random attention tasks with their data and float64 results.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/device/attention.h"
#include "engine/device/device.h"
#include "tests/unit/device/defined_row.h"
#include "tests/unit/device/strided_array.h"

namespace hilbert_ring {

// The fixed properties of a case; the rest is random.
struct CaseShape {
  DataType dtype = DataType::kFloat32;
  DataType out_dtype = DataType::kFloat32;
  Result result = Result::kWrite;
  Mask mask = Mask::kNone;
  int64_t diagonal_shift = 0;
  int64_t left = kUnbounded, right = 0;
  float softcap = 0;
  float bias = 0;  // of the greatest distance under the greatest slope; 0: no slopes
  int64_t row_distance = 1;
  int64_t batch = 1, heads = 1, query_rows = 1, key_rows = 1, head_dim = 8, value_dim = 8;
  float scale = 1.0f;
  float out_scale = 1.0f;
  float deviation = 1.0f;     // of queries and keys
  int64_t position_step = 1;  // positions are multiples of it, around 0
  int64_t gap_unit = 1;       // of the elements between rows: 8 keeps 16-bit rows aligned

  std::string Describe() const;
};

// Any shape with a float64 loop of milliseconds.
CaseShape RandomShape(std::mt19937_64& random);

struct AttentionCase {
  AttentionCase(const CaseShape& shape, std::mt19937_64& random);
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  // A task over all keys, or over keys [begin, end) alone.
  AttentionTask Task() { return Task(0, shape.key_rows); }
  AttentionTask Task(int64_t begin, int64_t end);

  bool Sees(int64_t batch, int64_t query, int64_t key) const;

  // The slope of the head times the distance.
  double Bias(int64_t batch, int64_t query, int64_t key, int64_t head) const;

  // The lse of the task or of the state, now or before the task.
  double Lse(int64_t batch, int64_t query, int64_t head) const;
  double OldLse(int64_t batch, int64_t query, int64_t head) const;

  // The task's own keys alone, not scaled by out_scale.
  DefinedRow Define(int64_t batch, int64_t query, int64_t head) const;

  // All bytes that the task wrote.
  std::vector<std::byte> Written() const;

  CaseShape shape;
  StridedArray q, k, v;
  StridedArray out, lse;                                // of the task
  StridedArray row_max, row_sum;                        // the state, if results are merged
  StridedArray old_out, old_max, old_sum;               // copies from before the task
  std::vector<int64_t> query_positions, key_positions;  // [batch, rows] dense
  std::vector<float> slopes;                            // [heads], or empty

 private:
  double StateLse(const StridedArray& max, const StridedArray& sum, int64_t batch, int64_t query,
                  int64_t head) const;
};

// Returns the first error in out and lse under the shape's mask and result; empty: they are right.
//
// A float32 dot product of n terms errs by 4 sqrt(n) 2^-24 of the sum of their magnitudes, except
// once in thousands (Higham and Mary 2019, lambda = 4). Merges add no error that grows with the
// scores. A weight errs by as much, relatively, and by 4e-7 by its exponential and argument. out
// errs by twice that of the values' differences from their average. Sums err by 2e-6 of their
// terms, lse by a score's error and the rounding of itself and of the scaled maximum. A changed
// score errs by 8 roundings of its cap, and by 4 of its bias and of itself. Kernels on pairs of
// bfloat16 may round weights by 2^-8, of which differences from the average count. A GPU's tensor
// cores round 16-bit tasks' weights by 2^-8 or 2^-11, and divide by the sum before rounding. cuDNN
// rounds before and after scaling.
std::string WhatIsWrong(const AttentionCase& c, const DeviceInfo& made_by);

}  // namespace hilbert_ring
