// The tasks of a device: the one contract of every attention kernel, and the small operations that
// ring, tail, mixing and averaging are built from.
#pragma once

#include <cstdint>

#include "engine/device/view.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

enum class Mask {
  kNone,
  kDiagonal,   // key row j is seen by query row i iff j <= i + diagonal_shift
  kPositions,  // iff key_positions[j] <= query_positions[i]
};

enum class Result {
  // out and lse are overwritten; out may be of any type and is multiplied by out_scale, by a
  // library
  // after it was rounded
  kWrite,
  kMerge,  // merged into float32 (out, lse) in place; (0, -inf) is the identity
};

// Attention of one unit over one or more alike segments: query heads that share one kv head.
//   out[b, i, h] = softmax_j(scale * q[b, i, h] . k[b, j]) v[b, j],   lse = log of the denominator
// A query row that sees no key gives out = 0 and lse = -inf when written and changes nothing when
// merged. Accumulation is in float32; a kernel on pairs of bfloat16 ("cpu/avx512-bf16") rounds
// the weights of a bfloat16 task to bfloat16, and a GPU's tensor cores those of a 16-bit task to
// its type. Inputs are finite: a NaN or infinity spreads to other rows of its tile. Tasks of one
// call never write the same element.
struct AttentionTask {
  DataType dtype = DataType::kFloat32;  // of q, k and v
  int64_t batch = 1;
  int64_t heads = 1;  // query heads
  int64_t query_rows = 0;
  int64_t key_rows = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  ConstView q;  // [batch, query_rows, heads, head_dim]
  ConstView k;  // [batch, key_rows, 1, head_dim]
  ConstView v;  // [batch, key_rows, 1, value_dim]
  Result result = Result::kWrite;
  DataType out_dtype = DataType::kFloat32;
  MutableView out;  // [batch, query_rows, heads, value_dim]
  LseView lse;      // [batch, query_rows, heads]; kWrite: no data, then it is not written
  float scale = 1.0f;
  float out_scale = 1.0f;  // kWrite only
  Mask mask = Mask::kNone;
  int64_t diagonal_shift = 0;
  PositionsView query_positions;
  PositionsView key_positions;
};

// Merges `count` zero keys with zero values into float32 (out, lse): each has score 0. Tasks of one
// call never write the same element.
struct ZeroKeysTask {
  int64_t batch = 1, rows = 0, heads = 0, value_dim = 0;
  MutableView out;  // float32
  LseView lse;
  int64_t count = 0;
};

// to = from * scale, rounded to nearest even; from is float32. In place where every row and head of
// `to` begins at the address at which it begins in `from`.
struct FinalizeTask {
  int64_t batch = 1, rows = 0, heads = 0, value_dim = 0;
  ConstView from;
  DataType to_dtype = DataType::kFloat32;
  MutableView to;
  float scale = 1.0f;
};

// Copies rows x heads pieces of head_bytes to a dense [rows, heads, head_bytes] block. Strides in
// bytes.
struct PackTask {
  const void* from = nullptr;
  int64_t rows = 0, row_stride = 0;
  int64_t heads = 1, head_stride = 0;
  int64_t head_bytes = 0;
  void* to = nullptr;
};

}  // namespace hilbert_ring
