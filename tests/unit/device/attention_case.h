// Random attention tasks with their data, and what float64 makes of them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/device/attention.h"
#include "engine/device/device.h"
#include "tests/unit/device/strided_array.h"

namespace hilbert_ring {

// What a case is made from; the rest of it is random.
struct CaseShape {
  DataType dtype = DataType::kFloat32;
  DataType out_dtype = DataType::kFloat32;
  Result result = Result::kWrite;
  Mask mask = Mask::kNone;
  int64_t diagonal_shift = 0;
  int64_t batch = 1, heads = 1, query_rows = 1, key_rows = 1, head_dim = 8, value_dim = 8;
  float scale = 1.0f;
  float out_scale = 1.0f;
  float deviation = 1.0f;     // of queries and keys
  int64_t position_step = 1;  // positions are multiples of it, around 0
  int64_t gap_unit = 1;       // of the elements between rows: 8 keeps 16-bit rows aligned

  std::string Describe() const;
};

// Any shape whose float64 loop takes milliseconds.
CaseShape RandomShape(std::mt19937_64& random);

struct AttentionCase {
  AttentionCase(const CaseShape& shape, std::mt19937_64& random);
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  // Over all keys, or over keys [begin, end) alone.
  AttentionTask Task() { return Task(0, shape.key_rows); }
  AttentionTask Task(int64_t begin, int64_t end);

  bool Sees(int64_t batch, int64_t query, int64_t key) const;

  CaseShape shape;
  StridedArray q, k, v;
  StridedArray out, lse;          // of the task
  StridedArray old_out, old_lse;  // what was merged into: copies of out and lse before the task
  std::vector<int64_t> query_positions, key_positions;  // [batch, rows] dense
};

// Nothing when out and lse are right for the shape's masks and result; else the first thing wrong.
// Right is |out - expected| <= 1e-5 |expected| + max(2e-6, 2^-22 max|score| max|value|) and
// |lse - expected| <= 1e-5 (1 + |expected|), plus the rounding of out_dtype, and of a float32 dot
// product: a score that is far smaller than its terms cannot be better than they are, 2^-24 of
// their sum. A kernel on pairs of bfloat16 may also round the weights of bfloat16 tasks: by 2^-8,
// of which only what values differ from their average is felt. A GPU's tensor cores
// round those of all 16-bit tasks, by 2^-8 or 2^-11, and divide by the sum of what was not rounded.
// cuDNN's results are rounded before they are scaled and after, unless by a power of two.
std::string WhatIsWrong(const AttentionCase& c, const DeviceInfo& made_by);

}  // namespace hilbert_ring
