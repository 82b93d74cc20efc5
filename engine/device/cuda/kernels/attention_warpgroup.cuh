// Attention of 16-bit types by Hopper's asynchronous products, on compute capability 9.0.
//
// A block of kGroups warpgroups computes a tile of lanes, 64 a group. Asynchronous copies bring
// keys and values into two buffers each. Both products of a step start together, and scores are
// awaited first: the threads turn them into weights during the other product.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_fragments.cuh"
#include "engine/device/cuda/kernels/attention_panels.cuh"
#include "engine/device/cuda/kernels/attention_products.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/warpgroup.cuh"

namespace hilbert_ring::cuda {

template <typename T, int kDimension, int kWarpgroups>
struct Warpgroup16 {
  using Element = T;
  static constexpr int kDim = kDimension;  // head_dim and value_dim are at most this
  static constexpr int kGroups = kWarpgroups;
  static constexpr int kRowTiles = 1;
  static constexpr int kKeys = 128;
  static constexpr int kGroupThreads = 128;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kLanes = kGroups * 64;
  static constexpr int kQueries = kLanes * kDim;  // elements in shared memory
  static constexpr int kTileRows = kKeys * kDim;  // elements of a buffer of keys or values
  static constexpr int kSharedBytes = (kQueries + 4 * kTileRows) * static_cast<int>(sizeof(T)) +
                                      KeyWalk<kLanes, kKeys>::kSharedBytes +
                                      static_cast<int>(sizeof(QueryTile));
  static_assert(kSharedBytes <= 227 << 10, "what a block may have on compute capability 9.0");
};

template <typename Kernel>
struct WarpgroupMemory {
  typename Kernel::Element* queries;
  typename Kernel::Element* keys;    // two buffers
  typename Kernel::Element* values;  // two buffers
  char* walk;
  QueryTile* tile;  // read again at the block's end, to save registers until then
};

// Softmax and sums of values of the tile's lanes. kAligned: rows begin at multiples of 16 bytes;
// kWorkMaskAny and false serve all tiles. Returns the number of scores.
template <typename Kernel, int kMask, bool kAligned>
__device__ __forceinline__ int64_t SumValues(const QueryTile& tile,
                                             const WarpgroupMemory<Kernel>& memory,
                                             Softmax16<Kernel>& state,
                                             float (&out)[1][Kernel::kDim / 8][4]) {
  using T = typename Kernel::Element;
  // Fields in registers: the loop would read memory again, which asynchronous products may change.
  const AttentionWork& work = *tile.work;
  const float score_scale = work.score_scale;
  const bool aligned = kAligned || work.keys_aligned != 0;
  const RowSource<Kernel> key_rows(work.k, tile, work.head_dim);
  const RowSource<Kernel> value_rows(work.v, tile, work.value_dim);
  KeyWalk<Kernel::kLanes, Kernel::kKeys, kMask> walk(tile, memory.walk);
  const int group = UniformOfWarp(static_cast<int>(threadIdx.x) / Kernel::kGroupThreads);
  const int thread = threadIdx.x % 32;
  const int first_lane = static_cast<int>(threadIdx.x) / 32 * 16;
  const int own_lane = first_lane + thread / 4;  // and 8 below
  const int rows_below[2] = {tile.RowsBelow(min(own_lane, tile.lanes - 1)),
                             tile.RowsBelow(min(own_lane + 8, tile.lanes - 1))};

  const auto load_keys = [&](const KeyTile& of, int buffer) {
    if (of.count == 0) return;
    LoadRows<Kernel>(memory.keys + buffer * Kernel::kTileRows, key_rows, of, aligned);
  };
  const auto load_values = [&](const KeyTile& of, int buffer) {
    LoadRows<Kernel>(memory.values + buffer * Kernel::kTileRows, value_rows, of, aligned);
  };
  // All loaded rows are there, and the products of the last step have read theirs.
  const auto await_rows = [&] {
    CopyAsyncWait();
    PublishToProducts();
    __syncthreads();
  };

  KeyTile now = walk.First();
  if (now.count == 0) return 0;
  load_keys(now, 0);
  LoadQueries<Kernel, Kernel::kThreads>(memory.queries, tile, threadIdx.x);
  await_rows();
  KeyTile next = walk.Next(now.begin + Kernel::kKeys);
  load_values(now, 0);
  load_keys(next, 1);

  const SharedMatrix own_queries = MatrixAt(memory.queries + group * 64 * kPanel);
  const SharedMatrix keys = MatrixAt(memory.keys), values = MatrixAt(memory.values);
  float scores[1][Kernel::kKeys / 8][4];
  uint32_t weights[Kernel::kKeys / 16][4];
  int computed = 0;  // keys
  const auto weigh = [&](const KeyTile& of) {
    if (!walk.AllSeen(of)) {
      if constexpr (kMask == kWorkMaskAny) {
        Hide<Kernel>(scores, walk, of, tile, first_lane, thread);
      } else {
        HideOutside<Kernel>(scores[0], walk, of, rows_below, thread);
      }
    }
    computed += of.count;
    return Weigh<Kernel>(state, scores, score_scale);
  };
  const auto pack = [&] {
#pragma unroll
    for (int n = 0; n < Kernel::kKeys / 16; ++n) PackWeights<T>(weights[n], scores[0], n);
  };
  const auto hold = [&] {
    WarpgroupHold(scores[0]);
    WarpgroupHold(weights);
    WarpgroupHold(out[0]);
  };

  WarpgroupBegin();
  StartScores<Kernel>(scores[0], own_queries, keys);
  WarpgroupWait<0>();
  WarpgroupHold(scores[0]);
  weigh(now);
  pack();
  int buffer = 0;  // of the values of these weights
  for (await_rows(); next.count > 0; await_rows()) {
    const int other = buffer ^ 1;
    hold();
    WarpgroupBegin();
    StartScores<Kernel>(scores[0], own_queries, PartAt(keys, other * Kernel::kTileRows));
    StartValues<Kernel>(out[0], weights, PartAt(values, buffer * Kernel::kTileRows));
    // During the products the next step's rows replace the rows that the last step read.
    const KeyTile after = walk.Next(next.begin + Kernel::kKeys);
    load_values(next, other);
    load_keys(after, buffer);
    WarpgroupWait<1>();
    WarpgroupHold(scores[0]);
    const Rescale16<Kernel> rescale = weigh(next);
    // The jump keeps the exponentials before the wait for the values' product. All warps jump
    // alike, because a wait is one instruction of a whole group.
    const bool any = __syncthreads_or(rescale.needed) != 0;
    WarpgroupHold(scores[0]);
    if (any) {
      WarpgroupWait<0>();
      hold();
      RescaleOut<Kernel>(rescale, out);
    } else {
      WarpgroupWait<0>();
      hold();
    }
    pack();
    buffer = other;
    next = after;
  }
  hold();
  WarpgroupBegin();
  StartValues<Kernel>(out[0], weights, PartAt(values, buffer * Kernel::kTileRows));
  WarpgroupWait<0>();
  hold();
  return int64_t{tile.lanes} * computed;
}

// A block computes tile blockIdx.x of the works.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    AttendByWarpgroups(const AttentionWork* works, int count, LaunchNotes notes) {
  static_assert(Kernel::kDim == kPanel || Kernel::kDim == 2 * kPanel);
  using T = typename Kernel::Element;
  WarpgroupMemory<Kernel> memory{.queries = reinterpret_cast<T*>(SharedMemory())};
  memory.keys = memory.queries + Kernel::kQueries;
  memory.values = memory.keys + 2 * Kernel::kTileRows;
  memory.walk = reinterpret_cast<char*>(memory.values + 2 * Kernel::kTileRows);
  memory.tile = reinterpret_cast<QueryTile*>(memory.walk +
                                             KeyWalk<Kernel::kLanes, Kernel::kKeys>::kSharedBytes);
  const QueryTile tile = FindTile(works, count, blockIdx.x, Kernel::kLanes);
  if (threadIdx.x == 0) *memory.tile = tile;
  __syncthreads();

  float out[1][Kernel::kDim / 8][4];
  Softmax16<Kernel> state;
  Clear<Kernel>(state, out);
  int64_t computed = 0;
  if (tile.work->keys_aligned != 0 && tile.work->mask == kWorkMaskNone) {
    computed = SumValues<Kernel, kWorkMaskNone, true>(tile, memory, state, out);
  } else if (tile.work->keys_aligned != 0 && tile.work->mask == kWorkMaskDiagonal) {
    computed = SumValues<Kernel, kWorkMaskDiagonal, true>(tile, memory, state, out);
  } else {
    computed = SumValues<Kernel, kWorkMaskAny, false>(tile, memory, state, out);
  }
  CountScores(notes, computed);
  StoreRows<Kernel>(*memory.tile, state, out, static_cast<int>(threadIdx.x) / 32 * 16,
                    threadIdx.x % 32, BlockNote{notes, *memory.tile->work});
}

}  // namespace hilbert_ring::cuda
