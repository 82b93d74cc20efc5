// Tasks of a device: the contract of every attention kernel, and the small operations of ring,
// tail, mixing and averaging.
#pragma once

#include <cstdint>

#include "engine/device/view.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

enum class Mask {
  kNone,
  // Key row j is seen by query row i iff it is at most `left` rows before key row
  // i + diagonal_shift, and at most `right` rows after it.
  kDiagonal,
  kPositions,  // iff key_positions[j] <= query_positions[i]
};

// Changes of a score s = scale * q . k before the mask: first the cap, then the bias.
struct ScoreChange {
  float softcap = 0;  // > 0: s becomes softcap * tanh(s / softcap)

  // [heads], in device memory; s becomes s - slope * distance; null: no bias. The distance is
  // Euclidean between query_coordinates and key_coordinates if the task has axes, 0 with a NaN
  // among them. Otherwise it is that of query_positions and key_positions if the task has them,
  // else row_distance times the rows from key row i + diagonal_shift to key row j.
  const float* slopes = nullptr;
  int64_t row_distance = 1;
  int axes = 0;  // 2 or 3 with coordinates, up to kMostBiasCoordinate

  bool changes() const { return softcap > 0 || slopes != nullptr; }
};

enum class Result {
  // Overwrites out and lse. out has any type, times out_scale (by a library: after rounding).
  kWrite,
  // Merges in place into float32 out, which is always divided by the sum, and the softmax state;
  // (0, -inf, 0) is the identity. FinalizeTask makes lse of the final state.
  kMerge,
};

// Attention of one unit over one or more equal segments: query heads that share one kv head.
//   out[b, i, h] = softmax_j(scale * q[b, i, h] . k[b, j]) v[b, j],   lse = log of the denominator
// A query row that sees no key gives out = 0 and lse = -inf when written, and changes nothing when
// merged. Rows do not depend on keys that they do not see. Tasks of one call never write the same
// element.
//
// Accumulation is in float32. Kernels on bfloat16 itself ("cpu/avx512-bf16", "cpu/amx-bf16") round
// weights to bfloat16, and a GPU's tensor cores to the 16-bit type. If the greatest score is finite
// in float32, all weights are relative to it, exactly, at any size; sums of weight times value
// overflow only if the result does. Other numbers follow IEEE arithmetic in float32: a row that
// sees a score of NaN or +infinity has NaN in out and lse, a score of -infinity has weight 0, and a
// value that is not finite reaches the rows that see it.
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
  LseView lse;      // [batch, query_rows, heads]; kWrite only; null data: not written
  StateView state;  // [batch, query_rows, heads]; kMerge only
  float scale = 1.0f;
  float out_scale = 1.0f;  // kWrite only
  ScoreChange change;
  Mask mask = Mask::kNone;
  int64_t diagonal_shift = 0;  // of kDiagonal, and of a bias without positions
  int64_t left = kUnbounded;   // kDiagonal only; >= 0
  int64_t right = 0;           // kDiagonal only; >= 0
  PositionsView query_positions;
  PositionsView key_positions;
  CoordinatesView query_coordinates;
  CoordinatesView key_coordinates;

  // The scale of state.max: it holds changed scores as they are, others before the scale.
  float StateScale() const { return change.changes() ? 1.0f : scale; }
};

// Merges a part into float32 out and state: another float32 result with its state, or `count` keys
// of score 0 with zero values. Tasks of one call never write the same element.
struct MergeTask {
  int64_t batch = 1, rows = 0, heads = 0, value_dim = 0;
  MutableView out;  // float32
  StateView state;
  float scale = 1.0f;  // AttentionTask::StateScale()
  ConstView values;    // float32; null data: zero keys
  StateView part;
  int64_t count = 0;  // of zero keys
};

// Makes results of merged rows: to = from * scale, from float32, rounded to nearest even; lse =
// score_scale * max + log(sum). A sink is a score of weight without value, which is added to the
// softmax first. Each is in place if all rows and heads begin at the same addresses:
// `to` at those of `from`, `lse` at those of `state.max`.
struct FinalizeTask {
  int64_t batch = 1, rows = 0, heads = 0, value_dim = 0;
  ConstView from;
  DataType to_dtype = DataType::kFloat32;
  MutableView to;  // null data: out stays as it is
  float scale = 1.0f;
  StateView state;
  LseView lse;                   // null data: not made
  float score_scale = 1.0f;      // AttentionTask::StateScale(), its sign ignored
  const float* sinks = nullptr;  // [heads], in device memory; null: no sinks
};

// Copies rows x heads pieces to a dense [rows, heads, head_bytes] block. Strides are in bytes.
struct PackTask {
  const void* from = nullptr;
  int64_t rows = 0, row_stride = 0;
  int64_t heads = 1, head_stride = 0;
  int64_t head_bytes = 0;
  void* to = nullptr;
};

}  // namespace hilbert_ring
