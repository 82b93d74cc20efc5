// Attention of 16-bit types by the tensor cores' m16n8k16 products, from compute capability 8.0.
//
// A block of four warps computes a tile of lanes; each warp owns kRowTiles x 16 of them.
// Asynchronous copies bring keys and values into shared memory, one tile ahead: values during the
// scores, the next keys during the sums of values. Scores stay in registers; their weights, rounded
// to the data type, are the left side of the second product.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_fragments.cuh"
#include "engine/device/cuda/kernels/attention_panels.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

template <typename T, int kDimension, int kRowTilesPerWarp>
struct Tensor16 {
  using Element = T;
  static constexpr int kDim = kDimension;  // head_dim and value_dim are at most this
  static constexpr int kRowTiles = kRowTilesPerWarp;
  static constexpr int kKeys = 64;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  // Blocks on a multiprocessor that registers allow: sums and scores take most of them.
  static constexpr int kBlocks = kDim * kRowTiles <= 64 ? 4 : kDim * kRowTiles <= 128 ? 3 : 2;
  static constexpr int kLanes = kWarps * 16 * kRowTiles;
  using Walk = KeyWalk<kLanes, kKeys>;
  static constexpr int kSharedBytes =
      (kLanes + 2 * kKeys) * kDim * static_cast<int>(sizeof(T)) + Walk::kSharedBytes;
};

// scores = queries x keys of one warp's lanes.
template <typename Kernel>
__device__ __forceinline__ void Score(float (&scores)[Kernel::kRowTiles][Kernel::kKeys / 8][4],
                                      const typename Kernel::Element* queries,
                                      const typename Kernel::Element* keys, int warp, int thread) {
  constexpr int kDim = Kernel::kDim;
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int n = 0; n < Kernel::kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[r][n][e] = 0.0f;
    }
  }
  // The thread's matrix: rows, then pieces, on the left side; pieces, then rows, on the right.
  const int left_row = warp * 16 * Kernel::kRowTiles + thread % 16;
  const int left_piece = thread / 16;
  const int right_row = thread % 8 + thread / 16 * 8;
  const int right_piece = thread / 8 % 2;
#pragma unroll
  for (int x = 0; x < kDim / 16; ++x) {
    uint32_t left[Kernel::kRowTiles][4];
#pragma unroll
    for (int r = 0; r < Kernel::kRowTiles; ++r) {
      LoadMatrices(left[r],
                   queries + PieceAt(Kernel::kLanes, left_row + 16 * r, 2 * x + left_piece));
    }
#pragma unroll
    for (int n = 0; n < Kernel::kKeys / 16; ++n) {
      uint32_t right[4];
      LoadMatrices(right, keys + PieceAt(Kernel::kKeys, right_row + 16 * n, 2 * x + right_piece));
#pragma unroll
      for (int r = 0; r < Kernel::kRowTiles; ++r) {
        MultiplyAdd<typename Kernel::Element>(scores[r][2 * n], left[r], right[0], right[1]);
        MultiplyAdd<typename Kernel::Element>(scores[r][2 * n + 1], left[r], right[2], right[3]);
      }
    }
  }
}

// out += weights x values of one warp's lanes.
template <typename Kernel>
__device__ __forceinline__ void AddValues(
    float (&out)[Kernel::kRowTiles][Kernel::kDim / 8][4],
    const float (&weights)[Kernel::kRowTiles][Kernel::kKeys / 8][4],
    const typename Kernel::Element* values, int thread) {
  using T = typename Kernel::Element;
  const int right_row = thread % 16;
  const int right_piece = thread / 16;
#pragma unroll
  for (int n = 0; n < Kernel::kKeys / 16; ++n) {
    uint32_t left[Kernel::kRowTiles][4];
#pragma unroll
    for (int r = 0; r < Kernel::kRowTiles; ++r) {
      PackWeights<T>(left[r], weights[r], n);
    }
#pragma unroll
    for (int x = 0; x < Kernel::kDim / 16; ++x) {
      uint32_t right[4];
      LoadTransposed(right,
                     values + PieceAt(Kernel::kKeys, right_row + 16 * n, 2 * x + right_piece));
#pragma unroll
      for (int r = 0; r < Kernel::kRowTiles; ++r) {
        MultiplyAdd<T>(out[r][2 * x], left[r], right[0], right[1]);
        MultiplyAdd<T>(out[r][2 * x + 1], left[r], right[2], right[3]);
      }
    }
  }
}

// A block computes tile blockIdx.x of the works. kChanges: all works change scores, else none does.
template <typename Kernel, bool kChanges>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    Attend16(const AttentionWork* works, int count, LaunchNotes notes) {
  using T = typename Kernel::Element;
  T* const queries = reinterpret_cast<T*>(SharedMemory());
  T* const keys = queries + Kernel::kLanes * Kernel::kDim;
  T* const values = keys + Kernel::kKeys * Kernel::kDim;
  const QueryTile tile = FindTile(works, count, blockIdx.x, Kernel::kLanes);
  const AttentionWork& work = *tile.work;
  const float score_scale = work.score_scale;
  typename Kernel::Walk walk(tile, reinterpret_cast<char*>(values + Kernel::kKeys * Kernel::kDim));
  const bool aligned = work.keys_aligned != 0;
  const int warp = threadIdx.x / 32, thread = threadIdx.x % 32;
  const int first_lane = warp * 16 * Kernel::kRowTiles;

  float out[Kernel::kRowTiles][Kernel::kDim / 8][4];
  Softmax16<Kernel> state;
  Clear<Kernel>(state, out);

  // Made at each step: registers are scarcer here than time to read the work again.
  const auto key_rows = [&] { return RowSource<Kernel>(work.k, tile, work.head_dim); };
  const auto value_rows = [&] { return RowSource<Kernel>(work.v, tile, work.value_dim); };
  KeyTile now = walk.First();
  if (now.count > 0) LoadRows<Kernel>(keys, key_rows(), now, aligned);
  LoadQueries<Kernel, Kernel::kThreads>(queries, tile, threadIdx.x);
  int computed = 0;  // keys
  while (now.count > 0) {
    CopyAsyncWait();
    __syncthreads();  // the keys are there, and the previous values are read
    LoadRows<Kernel>(values, value_rows(), now, aligned);
    float scores[Kernel::kRowTiles][Kernel::kKeys / 8][4];
    Score<Kernel>(scores, queries, keys, warp, thread);
    CopyAsyncWait();
    __syncthreads();  // the values are there, and the keys are read
    const KeyTile next = walk.Next(now.begin + Kernel::kKeys);
    if (next.count > 0) LoadRows<Kernel>(keys, key_rows(), next, aligned);
    if constexpr (kChanges) Change<Kernel>(scores, walk, now, tile, first_lane, thread);
    if (!walk.AllSeen(now)) Hide<Kernel>(scores, walk, now, tile, first_lane, thread);
    RescaleOut<Kernel>(Weigh<Kernel>(state, scores, score_scale), out);
    AddValues<Kernel>(out, scores, values, thread);
    computed += now.count;
    now = next;
  }
  CountScores(notes, int64_t{tile.lanes} * computed);
  StoreRows<Kernel>(tile, state, out, first_lane, thread, BlockNote{notes, *tile.work});
}

}  // namespace hilbert_ring::cuda
