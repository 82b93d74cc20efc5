// The input of attention kernels: tasks as plain numbers, and the parts of them in one launch.
//
// A lane is one query row of one head. A batch's lanes are ordered by row, then by head. A tile is
// a run of a batch's lanes, at most as many as the kernel takes at once. A block of threads
// computes a tile over the work's keys.
#pragma once

#include <cstdint>

namespace hilbert_ring {

inline constexpr int kWorkFloat32 = 0;  // DataType; of dtype and out_dtype
inline constexpr int kWorkBFloat16 = 1;
inline constexpr int kWorkFloat16 = 2;

inline constexpr int kWorkMaskNone = 0;  // Mask
inline constexpr int kWorkMaskDiagonal = 1;
inline constexpr int kWorkMaskPositions = 2;

// Element (b, i, h, x) is at data + b * batch + i * row + h * head + x elements.
struct WorkView {
  void* data = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;
};

// A StateView. Element (b, i, h) of `max` and of `sum` is at b * batch + i * row + h * head.
struct WorkState {
  float* max = nullptr;
  float* sum = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;
};

// ScoreChange: a product s of a query, with the sign of the task's scale, and a key becomes
//   softcap * tanh(s * cap_factor), or s * scale without a softcap, then minus slope * distance.
// Without a softcap and slopes it stays s.
struct WorkChange {
  float scale = 1.0f;
  float softcap = 0.0f;     // > 0, or 0: none
  float cap_factor = 0.0f;  // scale / softcap

  const float* slopes = nullptr;  // [heads]; null: no bias
  // Of a query row and a key row without positions: row_distance times the rows from key row
  // i + diagonal_shift, which may be far outside of the keys.
  int64_t diagonal_shift = 0;
  int64_t row_distance = 1;
  int axes = 0;  // 2 or 3: the distance is that of coordinates
};

// A task over keys [key_begin, key_end). Trivially copyable: it is copied to the device.
struct AttentionWork {
  WorkView q, k, v;  // k and v: head 0
  WorkView out;

  // Softmax of the result: its logarithm, or a state to merge later. Null data is not written.
  WorkView lse;
  WorkState state;

  // An earlier float32 result and its state, merged into this one. They may be `out` and `state`.
  // Null data: no merge.
  WorkView prior_out;
  WorkState prior_state;

  WorkView query_positions, key_positions;      // int64; null data: none
  WorkView query_coordinates, key_coordinates;  // float32 [axes]; with change.axes
  WorkChange change;

  int64_t lanes = 0;  // query rows x heads of one batch
  int64_t heads = 1;
  int64_t key_begin = 0;
  int64_t key_end = 0;

  // Under kWorkMaskDiagonal query row i sees keys i + lower_shift to i + upper_shift. Both shifts
  // are within [-query rows, key rows].
  int64_t lower_shift = 0;
  int64_t upper_shift = 0;

  // This work has tiles [first_tile, first_tile + tiles) of the launch. The first of them is tile
  // task_tile of the task. Works that all have the first_tile 0 are interleaved: they have the same
  // number of tiles, and tile t of the launch is work t % works' tile t / works.
  int64_t first_tile = 0;
  int64_t tiles = 0;
  int64_t task_tile = 0;
  int64_t tiles_per_batch = 1;

  float scale = 1.0f;        // AttentionTask::StateScale(), its sign ignored
  float score_scale = 1.0f;  // scale * log2(e), above 0; 1 if scale is 0
  int careful = 0;           // 1: a factor is near float32's limits: AttendCarefully computes it
  float query_sign = 1.0f;   // 1, -1 or 0, the sign of the task's scale
  float out_scale = 1.0f;

  int head_dim = 0;
  int value_dim = 0;
  int dtype = kWorkFloat32;
  int out_dtype = kWorkFloat32;
  int mask = kWorkMaskNone;

  // 1: rows of q, or of k and v, begin at multiples of 16 bytes; rows of out at 2 elements.
  int queries_aligned = 0;
  int keys_aligned = 0;
  int out_aligned = 0;
};

// A launch's results beside its rows, in device memory. Kernels only add to counters.
struct LaunchNotes {
  unsigned long long* scores = nullptr;  // counter of computed scores
  unsigned* careful = nullptr;           // becomes 1 if one of careful_tiles does

  // [tiles]: 1 if AttendCarefully must compute the tile, else 0. It must if the work is careful. It
  // must also if a sum of weight times value is not finite, but the weights are.
  unsigned char* careful_tiles = nullptr;

  // Counter of tiles that blocks of a pipelined kernel took after their first.
  unsigned long long* taken = nullptr;
};

}  // namespace hilbert_ring
