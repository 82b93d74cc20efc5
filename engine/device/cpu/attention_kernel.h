// The kernels of the CPU device, compiled for every instruction set of Highway, chosen at run time.
//
// Attention of one lane tile: a lane is one (query row, query head) of a unit, and vectors run over
// lanes. A key is one broadcast for all lanes, and maxima and sums of the softmax never cross
// lanes. Only the tile's queries and outputs are transposed, once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/attention.h"
#include "engine/device/cpu/key_tile.h"
#include "engine/device/cpu/key_visibility.h"
#include "engine/device/cpu/lane_end.h"

namespace hilbert_ring {

inline constexpr int64_t kMaxDim = 256;       // of head_dim and value_dim
inline constexpr int64_t kMaxLaneBlock = 48;  // 3 vectors of 16 lanes: a multiple of every block's
inline constexpr int64_t kMaxLaneTile = 16 * kMaxLaneBlock;
inline constexpr int64_t kMaxScores = 128 * kMaxLaneBlock;  // keys of a tile times lanes
inline constexpr int64_t kMaxRowTile = 64;                  // keys of a tile of AttendRows
inline constexpr int64_t kMaxRowSlots = kMaxScores / kMaxRowTile;
inline constexpr int64_t kMaxTileFloats = int64_t{1} << 16;  // lanes of a tile times either dim
static_assert(kMaxLaneBlock * kMaxDim <= kMaxTileFloats);

// Keys that are summed apart before they are folded into the total. Rounding errors of long sums
// grow with a tile, these keys' tiles and all folds, 160 + keys / 4096 at most, instead of with
// tiles. Millions of equal keys show them.
inline constexpr int64_t kKeysPerFold = 4096;

// Lanes [begin, end) of a task's batch, row * heads + head: kMaxLaneTile, kMaxTileFloats at most.
struct LaneTile {
  const AttentionTask* task = nullptr;
  int64_t batch = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// Softmax state of a tile's lanes: the greatest score before the scale, times its unit's factor,
// and the sums of exp(scale * (score - greatest)) and of that times value.
struct LaneState {
  alignas(64) float row_max[kMaxLaneTile];
  alignas(64) float sum[kMaxLaneTile];
  alignas(64) float rounded_sum[kMaxLaneTile];  // of rounded weights, as in `out`
  alignas(64) float out[kMaxTileFloats];        // [lane blocks][value_dim][lanes of the block]
};

// Memory of one thread: 1,392 KiB at most, resident as far as it is used. Queries, keys and values
// take half of their part as pairs of bfloat16.
struct AttentionScratch {
  alignas(64) float queries[kMaxTileFloats];      // [lane blocks][head_dim][lanes of the block]
  LaneState run;                                  // of the keys since the last fold
  LaneState total;                                // of the keys before
  alignas(64) float non_finite[kMaxTileFloats];   // as LaneState.out: sums kept apart
  alignas(64) float keys[kMaxKeyTile * kMaxDim];  // [kKeyTile][head_dim]
  alignas(64) float values[(kMaxKeyTile + 2) * kMaxDim];  // in the product's layout
  alignas(64) float scores[kMaxScores];                   // of a block, or of 3 smaller ones
  alignas(64) float limits[kMaxLaneTile];
  alignas(64) float starts[kMaxLaneTile];
  alignas(64) float slopes[kMaxLaneTile];  // with places of lanes and keys: biases
  alignas(64) float lane_places[kPlaceParts][kMaxLaneTile];
  alignas(64) float key_places[kPlaceParts][kMaxKeyTile];
  alignas(64) float rescale[kMaxRowSlots];
  alignas(64) float rows[kMaxLaneBlock * kMaxDim];  // of queries or outputs, in the task's layout
};

// Computes the tile and writes or merges its results. Gives `report` the scores since the last
// call, about every millisecond and at the end; false ends the tile with undefined outputs.
using AttendTileFunction = void (*)(const LaneTile& tile, AttentionScratch& scratch,
                                    const std::function<bool(int64_t scores)>& report);

// Lanes of a task with empty ones: AttendRows takes them in fours.
inline int64_t RowSlots(const AttentionTask& task) {
  return (task.query_rows * task.heads + 3) / 4 * 4;
}

// Merges few lanes of tasks with one batch, which pass through their keys together: kMerge, alike,
// and their keys and values are neighbouring heads of the same rows; kMaxRowSlots at most. Returns
// false, with nothing merged, if a result may not be exact or finite: AttendTile computes such
// tasks. A `report` that returns false leaves outputs undefined.
using AttendRowsFunction = bool (*)(std::span<const AttentionTask> tasks, AttentionScratch& scratch,
                                    const std::function<bool(int64_t scores)>& report);

// Keys of a short batch, and query rows times heads, at most.
inline constexpr int64_t kMostShortKeys = 16;
inline constexpr int64_t kMostShortLanes = 16;

alignas(64) inline constexpr float kShortRanks[kMostShortKeys] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                                  8, 9, 10, 11, 12, 13, 14, 15};

// Computes short batches with all their lanes; kMaxRowSlots at most. Their tasks may differ in
// rows, heads, mask and results, and compare no positions. Appends to `rest` the lanes without
// results, because these may not be exact or finite: AttendTile computes them.
using AttendShortFunction = void (*)(std::span<const LaneTile> batches, AttentionScratch& scratch,
                                     std::vector<LaneTile>& rest);

// to[i] = from[i] * scale, rounded to nearest even; `to` may be at the same address as `from`.
using StoreRowFunction = void (*)(const float* from, int64_t count, float scale, DataType dtype,
                                  void* to);

// out[x] = out[x] * shares.before + values[x] * shares.now, in float64.
using MergeRowFunction = void (*)(const MergeShares& shares, const float* values, int64_t count,
                                  float* out);

struct TargetKernels {
  AttendTileFunction attend = nullptr;             // in float32
  AttendTileFunction attend_with_pairs = nullptr;  // bfloat16 by an instruction on pairs, if any
  AttendTileFunction attend_with_emulated_pairs = nullptr;
  AttendTileFunction attend_with_tiles = nullptr;  // bfloat16 by AMX, if any
  AttendTileFunction attend_with_emulated_tiles = nullptr;
  AttendRowsFunction rows = nullptr;  // of few lanes, in float32
  AttendRowsFunction rows_with_pairs = nullptr;
  AttendRowsFunction rows_with_emulated_pairs = nullptr;
  AttendShortFunction attend_short = nullptr;
  StoreRowFunction store_row = nullptr;
  MergeRowFunction merge_row = nullptr;
};

struct CpuKernels {
  std::string instructions;  // as in DeviceOptions: "avx2"
  AttendTileFunction attend = nullptr;
  AttendRowsFunction attend_rows = nullptr;
  AttendShortFunction attend_short = nullptr;
  StoreRowFunction store_row = nullptr;
  MergeRowFunction merge_row = nullptr;
};

// Kernels of every instruction set that this machine runs, the best first. The last two are the
// best set's with plain code in place of AVX512_BF16 ("bf16-emulated") and of AMX
// ("amx-bf16-emulated"), to test those anywhere.
std::vector<CpuKernels> RunnableCpuKernels();

}  // namespace hilbert_ring
