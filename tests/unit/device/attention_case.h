// Random attention tasks with their data, and what float64 makes of them.
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

  // As the task wrote it, or as the state has it, now or before the task.
  double Lse(int64_t batch, int64_t query, int64_t head) const;
  double OldLse(int64_t batch, int64_t query, int64_t head) const;

  // Of the task's own keys alone, not scaled by out_scale.
  DefinedRow Define(int64_t batch, int64_t query, int64_t head) const;

  // Everything that the task wrote.
  std::vector<std::byte> Written() const;

  CaseShape shape;
  StridedArray q, k, v;
  StridedArray out, lse;                   // of the task
  StridedArray row_max, row_sum;           // the state, where results are merged
  StridedArray old_out, old_max, old_sum;  // what was merged into: copies from before the task
  std::vector<int64_t> query_positions, key_positions;  // [batch, rows] dense

 private:
  double StateLse(const StridedArray& max, const StridedArray& sum, int64_t batch, int64_t query,
                  int64_t head) const;
};

// Nothing when out and lse are right for the shape's masks and result; else the first thing wrong.
//
// A float32 dot product of n terms is off by 4 sqrt(n) 2^-24 of the sum of their magnitudes at
// most, but for one in thousands (Higham and Mary 2019, lambda = 4); a part that is merged adds
// nothing that grows with the scores. A weight is off by as much, relatively, and by 4e-7 for the
// exponential and its argument: twice that of what values differ from their average is felt in
// out. Sums are off by 2e-6 of their terms. lse is off by a score's error and the rounding of
// itself and of the scaled maximum. A kernel on pairs of bfloat16 may also round the weights of
// bfloat16 tasks: by 2^-8, of which only what values differ from their average is felt. A GPU's
// tensor cores round those of all 16-bit tasks, by 2^-8 or 2^-11, and divide by the sum of what was
// not rounded. cuDNN's results are rounded before they are scaled and after, unless by a power of
// two.
std::string WhatIsWrong(const AttentionCase& c, const DeviceInfo& made_by);

}  // namespace hilbert_ring
