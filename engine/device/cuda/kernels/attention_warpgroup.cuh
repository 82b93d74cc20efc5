// Attention of 16-bit types by Hopper's asynchronous products, for compute capability 9.0.
//
// A block of kGroups warpgroups computes one tile of lanes, 64 of them a group. Keys and values
// come by asynchronous copies into two buffers each. While the tensor cores sum values by the
// weights of one tile of keys, the threads turn the scores of the next into weights: both products
// of a step are started together, and scores are waited for first.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_fragments.cuh"
#include "engine/device/cuda/kernels/attention_panels.cuh"
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
  static constexpr int kTileRows = kKeys * kDim;  // likewise, of one buffer of keys or values
  using Walk = KeyWalk<kLanes, kKeys>;
  static constexpr int kSharedBytes =
      (kQueries + 4 * kTileRows) * static_cast<int>(sizeof(T)) + Walk::kSharedBytes;
  static_assert(kSharedBytes <= 227 << 10, "what a block may have on compute capability 9.0");
};

// Starts scores = queries x keys of a group's lanes. `queries` is its part of the first panel.
template <typename Kernel>
__device__ __forceinline__ void StartScores(float (&scores)[Kernel::kKeys / 8][4],
                                            SharedMatrix queries, SharedMatrix keys) {
#pragma unroll
  for (int x = 0; x < Kernel::kDim; x += 16) {
    const int panel = x / kPanel;
    MultiplyRows<typename Kernel::Element>(
        scores, PartAt(queries, panel * Kernel::kLanes * kPanel + x % kPanel),
        PartAt(keys, panel * Kernel::kKeys * kPanel + x % kPanel), x > 0);
  }
  WarpgroupCommit();
}

// Starts out += weights x values.
template <typename Kernel>
__device__ __forceinline__ void StartValues(float (&out)[Kernel::kDim / 8][4],
                                            const uint32_t (&weights)[Kernel::kKeys / 16][4],
                                            SharedMatrix values) {
  using T = typename Kernel::Element;
#pragma unroll
  for (int n = 0; n < Kernel::kKeys / 16; ++n) {
    MultiplyColumns<T, 0>(out, weights[n], PartAt(values, 16 * n * kPanel));
    if constexpr (Kernel::kDim > kPanel) {
      MultiplyColumns<T, kPanel / 8>(out, weights[n],
                                     PartAt(values, (Kernel::kKeys + 16 * n) * kPanel));
    }
  }
  WarpgroupCommit();
}

// One block computes tile blockIdx.x of the works.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    AttendByWarpgroups(const AttentionWork* works, int count, LaunchNotes notes) {
  using T = typename Kernel::Element;
  static_assert(Kernel::kDim == kPanel || Kernel::kDim == 2 * kPanel);
  T* const queries = reinterpret_cast<T*>(SharedMemory());
  T* const keys = queries + Kernel::kQueries;  // two buffers
  T* const values = keys + 2 * Kernel::kTileRows;
  const QueryTile tile = FindTile(works, count, blockIdx.x, Kernel::kLanes);
  const AttentionWork& work = *tile.work;
  typename Kernel::Walk walk(tile, reinterpret_cast<char*>(values + 2 * Kernel::kTileRows));
  const bool aligned = work.keys_aligned != 0;
  const int group = threadIdx.x / Kernel::kGroupThreads, thread = threadIdx.x % 32;
  const int first_lane = threadIdx.x / 32 * 16;

  float out[1][Kernel::kDim / 8][4];
  Softmax16<Kernel> state;
  Clear<Kernel>(state, out);

  const auto load_keys = [&](const KeyTile& of, int buffer) {
    if (of.count == 0) return;
    LoadRows<Kernel>(keys + buffer * Kernel::kTileRows, work.k, tile.batch, of, work.head_dim,
                     aligned);
  };
  const auto load_values = [&](const KeyTile& of, int buffer) {
    LoadRows<Kernel>(values + buffer * Kernel::kTileRows, work.v, tile.batch, of, work.value_dim,
                     aligned);
  };
  // All that was loaded is there, and nobody works on what was there before the last step.
  const auto await_rows = [&] {
    CopyAsyncWait();
    PublishToProducts();
    __syncthreads();
  };

  KeyTile now = walk.Next(work.key_begin);
  int64_t computed = 0;
  if (now.count > 0) {
    load_keys(now, 0);
    LoadQueries<Kernel>(queries, tile);
    await_rows();
    KeyTile next = walk.Next(now.begin + Kernel::kKeys);
    load_values(now, 0);
    load_keys(next, 1);

    const SharedMatrix own_queries = MatrixAt(queries + group * 64 * kPanel);
    float scores[1][Kernel::kKeys / 8][4];
    uint32_t weights[Kernel::kKeys / 16][4];
    // Scores of tile `of` become weights.
    const auto weigh = [&](const KeyTile& of) {
      if (!of.all_seen) Hide<Kernel>(scores, walk, of, tile, first_lane, thread);
      computed += int64_t{tile.lanes} * of.count;
      return Weigh<Kernel>(state, scores, work.score_scale);
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
    StartScores<Kernel>(scores[0], own_queries, MatrixAt(keys));
    WarpgroupWait<0>();
    WarpgroupHold(scores[0]);
    weigh(now);
    pack();
    int buffer = 0;  // of the values that the weights are for
    for (await_rows(); next.count > 0; await_rows()) {
      const int other = buffer ^ 1;
      const KeyTile after = walk.Next(next.begin + Kernel::kKeys);
      load_values(next, other);
      load_keys(after, buffer);
      hold();
      WarpgroupBegin();
      StartScores<Kernel>(scores[0], own_queries, MatrixAt(keys + other * Kernel::kTileRows));
      StartValues<Kernel>(out[0], weights, MatrixAt(values + buffer * Kernel::kTileRows));
      WarpgroupWait<1>();
      WarpgroupHold(scores[0]);
      const Decay16<Kernel> decay = weigh(next);
      WarpgroupWait<0>();
      hold();
      Follow<Kernel>(decay, out);
      pack();
      buffer = other;
      next = after;
    }
    hold();
    WarpgroupBegin();
    StartValues<Kernel>(out[0], weights, MatrixAt(values + buffer * Kernel::kTileRows));
    WarpgroupWait<0>();
    hold();
  }
  CountScores(notes, computed);
  StoreRows<Kernel>(tile, state, out, first_lane, thread, notes);
}

}  // namespace hilbert_ring::cuda
