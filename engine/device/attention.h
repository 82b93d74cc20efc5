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
  // out and lse are overwritten; out may be of any type and is multiplied by out_scale (by a
  // library: after it was rounded).
  kWrite,
  // Merged in place into float32 out, which is always divided by the sum, and the softmax state;
  // (0, -inf, 0) is the identity. FinalizeTask makes lse of the state when all is merged.
  kMerge,
};

// Attention of one unit over one or more alike segments: query heads that share one kv head.
//   out[b, i, h] = softmax_j(scale * q[b, i, h] . k[b, j]) v[b, j],   lse = log of the denominator
// A query row that sees no key gives out = 0 and lse = -inf when written and changes nothing when
// merged. Accumulation is in float32; a kernel on bfloat16 itself ("cpu/avx512-bf16",
// "cpu/amx-bf16") rounds the weights of a bfloat16 task to bfloat16, and a GPU's tensor cores those
// of a 16-bit task to its type. Where the greatest score is finite in float32, all weights are
// relative to it, exactly, at any size; sums of weight times value do not overflow where the result
// does not. Values that are not finite follow IEEE arithmetic in float32: out and lse of a row are
// NaN where it sees a key whose score is NaN or +infinity, a score of -infinity has weight 0, and a
// value that is not finite reaches the rows that see it. A row is never touched by what it does not
// see. Tasks of one call never write the same element.
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
  LseView lse;      // [batch, query_rows, heads]; kWrite only; without data it is not written
  StateView state;  // [batch, query_rows, heads]; kMerge only
  float scale = 1.0f;
  float out_scale = 1.0f;  // kWrite only
  Mask mask = Mask::kNone;
  int64_t diagonal_shift = 0;
  PositionsView query_positions;
  PositionsView key_positions;
};

// Merges `count` zero keys with zero values into float32 out and state: each has score 0. Tasks of
// one call never write the same element.
struct ZeroKeysTask {
  int64_t batch = 1, rows = 0, heads = 0, value_dim = 0;
  MutableView out;  // float32
  StateView state;
  float scale = 1.0f;  // of the scores
  int64_t count = 0;
};

// Makes results of what was merged: to = from * scale, rounded to nearest even, from being float32;
// lse = score_scale * max + log(sum). Each in place where every row and head begins at the address
// at which it begins in what it is made of: `to` at that of `from`, `lse` at that of `state.max`.
struct FinalizeTask {
  int64_t batch = 1, rows = 0, heads = 0, value_dim = 0;
  ConstView from;
  DataType to_dtype = DataType::kFloat32;
  MutableView to;  // without data out stays as it is
  float scale = 1.0f;
  StateView state;
  LseView lse;               // without data there is none to be made
  float score_scale = 1.0f;  // AttentionTask.scale, whose sign is ignored
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
