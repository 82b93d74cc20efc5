// The input of attention kernels: tasks as plain numbers, and the parts of them in one launch.
//
// A lane is one query row of one head. A tile is up to a kernel's lanes of one batch of a task,
// ordered by rows, then heads. A block of threads computes a tile over the work's keys.
#pragma once

#include <cstdint>

namespace hilbert_ring {

inline constexpr int kWorkFloat32 = 0;  // of AttentionWork::dtype and out_dtype, equal to DataType
inline constexpr int kWorkBFloat16 = 1;
inline constexpr int kWorkFloat16 = 2;

inline constexpr int kWorkMaskNone = 0;  // equal to Mask
inline constexpr int kWorkMaskDiagonal = 1;
inline constexpr int kWorkMaskPositions = 2;

// Element (b, i, h, x) is at data + b * batch + i * row + h * head + x elements.
struct WorkView {
  void* data = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;
};

// A StateView: element (b, i, h) is at b * batch + i * row + h * head of both.
struct WorkState {
  float* max = nullptr;
  float* sum = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  int64_t head = 0;
};

// A task over keys [key_begin, key_end). Trivially copyable: it is copied to the device.
struct AttentionWork {
  WorkView q, k, v;  // k and v: head 0
  WorkView out;

  // The result's softmax, as its logarithm or as a state to merge later. Null data: not written.
  WorkView lse;
  WorkState state;

  // Float32 out and state to merge the result with; null data: no merge. May be out and state.
  WorkView prior_out;
  WorkState prior_state;

  WorkView query_positions, key_positions;  // int64

  int64_t lanes = 0;  // query rows x heads of one batch
  int64_t heads = 1;
  int64_t key_begin = 0;
  int64_t key_end = 0;
  int64_t diagonal_shift = 0;  // within [-query rows, key rows]

  // The launch's tiles [first_tile, first_tile + tiles) are the task's from task_tile on.
  int64_t first_tile = 0;
  int64_t tiles = 0;
  int64_t task_tile = 0;
  int64_t tiles_per_batch = 1;

  float scale = 1.0f;        // |scale|
  float score_scale = 1.0f;  // |scale| * log2(e), above 0; 1 if the scale is 0
  int careful = 0;           // 1: the scale is at an end of float32: use AttendCarefully
  float query_sign = 1.0f;   // of the scale: 1, -1, or 0 if every finite score is 0
  float out_scale = 1.0f;

  int head_dim = 0;
  int value_dim = 0;
  int dtype = kWorkFloat32;
  int out_dtype = kWorkFloat32;
  int mask = kWorkMaskNone;

  // Rows of q, or of k and v, begin at multiples of 16 bytes; rows of out at those of two elements.
  int queries_aligned = 0;
  int keys_aligned = 0;
  int out_aligned = 0;
};

struct LaunchNotes {
  unsigned long long* scores = nullptr;  // number computed; is added to
  unsigned* careful = nullptr;           // becomes 1 if one of careful_tiles does

  // [tiles]: 1 if the kernel left the tile's results to AttendCarefully: its work is careful, or
  // sums of weight times value are not finite though the weights are. Else 0.
  unsigned char* careful_tiles = nullptr;

  // Tiles that staying blocks took after their first; is added to.
  unsigned long long* taken = nullptr;
};

}  // namespace hilbert_ring
