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

// StateView: element (b, i, h) is at b * batch + i * row + h * head of both.
struct WorkState {
  float* max = nullptr;
  float* sum = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;
};

// One task over keys [key_begin, key_end). Trivially copyable, as it travels to the device.
struct AttentionWork {
  WorkView q, k, v;  // k and v: head 0
  WorkView out;

  // The softmax of the result: as its logarithm, or as a state that more is merged with. Without
  // data neither is written.
  WorkView lse;
  WorkState state;

  // Float32 out and its state that the result is merged with; no data: it is not merged. May be out
  // and state themselves.
  WorkView prior_out;
  WorkState prior_state;

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

  float scale = 1.0f;        // |scale|
  float score_scale = 1.0f;  // |scale| * log2(e), above 0; 1 where the scale is 0
  int careful = 0;           // whether that is not right, and all tiles are AttendCarefully's
  float query_sign = 1.0f;   // of the scale: 1, -1, or 0 where every finite score is 0
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

// What a launch tells of its tiles.
struct LaunchNotes {
  unsigned long long* scores = nullptr;  // computed; is added to
  unsigned* careful = nullptr;           // becomes 1 where one of careful_tiles is

  // [tiles]: 1 where the kernel left a tile's results as they were, because its work is careful, or
  // sums of weight times value are not finite though the weights are; else 0. AttendCarefully
  // computes those.
  unsigned char* careful_tiles = nullptr;

  // Where blocks stay: tiles that they have taken after their first; is added to.
  unsigned long long* taken = nullptr;
};

}  // namespace hilbert_ring
