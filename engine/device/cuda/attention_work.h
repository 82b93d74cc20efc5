// What an attention kernel reads: tasks as plain numbers, and the pieces of them that one launch
// computes.
//
// A lane is one query row of one head. A tile is up to a kernel's lanes of one batch of a task, in
// the order of rows, then heads; one block of threads computes one tile over the work's keys.
#pragma once

#include <cstdint>

namespace hilbert_ring {

inline constexpr int kWorkFloat32 = 0;  // of AttentionWork::dtype and out_dtype, as DataType
inline constexpr int kWorkBFloat16 = 1;
inline constexpr int kWorkFloat16 = 2;

inline constexpr int kWorkMaskNone = 0;  // as Mask
inline constexpr int kWorkMaskDiagonal = 1;
inline constexpr int kWorkMaskPositions = 2;

// Element (b, i, h, x) is at data + b * batch + i * row + h * head + x elements.
struct WorkView {
  void* data = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;
};

// One task over keys [key_begin, key_end). Trivially copyable, as it travels to the device.
struct AttentionWork {
  WorkView q, k, v;  // k and v: head 0
  WorkView out, lse;

  // Float32 (out, lse) that the result is merged with; no data: it is not merged. May be out and
  // lse themselves.
  WorkView prior_out, prior_lse;

  WorkView query_positions, key_positions;  // int64

  int64_t lanes = 0;  // query rows x heads of one batch
  int64_t heads = 1;
  int64_t key_begin = 0;
  int64_t key_end = 0;
  int64_t diagonal_shift = 0;  // within [-query rows, key rows]

  // Tiles [first_tile, first_tile + tiles) of the launch belong to this work: the task's tiles
  // from task_tile on, of which each batch has tiles_per_batch.
  int64_t first_tile = 0;
  int64_t tiles = 0;
  int64_t task_tile = 0;
  int64_t tiles_per_batch = 1;

  float score_scale = 1.0f;  // |scale| * log2(e), above 0
  float query_sign = 1.0f;   // of the scale: 1, -1, or 0 where every score is 0
  float out_scale = 1.0f;

  int head_dim = 0;
  int value_dim = 0;
  int dtype = kWorkFloat32;
  int out_dtype = kWorkFloat32;
  int mask = kWorkMaskNone;

  // Whether all rows of q, or of k and v, begin at multiples of 16 bytes, and those of out at
  // multiples of two elements.
  int queries_aligned = 0;
  int keys_aligned = 0;
  int out_aligned = 0;
};

}  // namespace hilbert_ring
