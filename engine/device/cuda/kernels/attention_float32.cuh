// Attention in float32 by plain multiply-adds, on any GPU. 16-bit elements are widened.
//
// A block of 128 threads computes a tile of 64 lanes over tiles of 64 keys. Thread (y, x) of 8 x 16
// owns lanes 8 y to 8 y + 7: their scores with keys x, x + 16, ..., and dims 4 x to 4 x + 3 of each
// 64 of the sums. Queries and keys pass through shared memory in pieces of 32 dims, values in
// pieces of 64: shared memory stays below 48 KiB at every dim.
//
// A tile's sums of values are added to the run's, which are folded into the total every
// kTilesPerFold tiles. Rounding errors of equal keys thus grow with 64 + tiles / 64 instead of
// keys.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_change.cuh"
#include "engine/device/cuda/kernels/attention_rows.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

inline constexpr int kTilesPerFold = 64;

template <int kDimension>
struct Plain32 {
  static constexpr int kDim = kDimension;  // value_dim is at most this
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = kDim <= 64 ? 3 : 2;  // on a multiprocessor
  static constexpr int kLanes = 64;
  static constexpr int kKeys = 64;
  static constexpr int kOwnLanes = 8;
  static constexpr int kOwnKeys = 4;
  static constexpr int kGroups = kDim / 64;  // of value dims
  static constexpr int kPieceDims = 32;
  static constexpr int kPiecePitch = kPieceDims + 4;  // 8 rows lie in different banks
  static constexpr int kWeightPitch = kKeys + 4;
  using Walk = KeyWalk<kLanes, kKeys>;
  static constexpr int kPieceFloats = (kLanes + kKeys) * kPiecePitch;  // more than values take
  static_assert(kPieceFloats >= kKeys * 64);
  static constexpr int kSharedBytes =
      (kPieceFloats + kLanes * kWeightPitch) * static_cast<int>(sizeof(float)) + Walk::kSharedBytes;
};

// Four elements from `at` on; zeros unless `read`.
__device__ __forceinline__ float4 LoadFour(int dtype, const void* data, int64_t at, bool read,
                                           bool aligned) {
  if (!read) return make_float4(0, 0, 0, 0);
  if (dtype == kWorkFloat32 && aligned) {
    return *reinterpret_cast<const float4*>(static_cast<const float*>(data) + at);
  }
  return make_float4(Widen(dtype, data, at), Widen(dtype, data, at + 1), Widen(dtype, data, at + 2),
                     Widen(dtype, data, at + 3));
}

__device__ __forceinline__ float Dot(const float4& a, const float4& b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// Dims [first_dim, first_dim + 32) of the tile's queries and of the keys.
template <typename Kernel>
__device__ __forceinline__ void LoadPieces(float* queries, float* keys, const QueryTile& tile,
                                           const KeyTile& now, int first_dim) {
  const AttentionWork& work = *tile.work;
  const int dim = threadIdx.x % 8 * 4;
  const bool there = first_dim + dim < work.head_dim;
  for (int lane = threadIdx.x / 8; lane < Kernel::kLanes; lane += Kernel::kThreads / 8) {
    const bool read = there && lane < tile.lanes;
    const int64_t at = read ? tile.At(work.q, lane) + first_dim + dim : 0;
    float4 values = LoadFour(work.dtype, work.q.data, at, read, work.queries_aligned != 0);
    values.x *= work.query_sign;
    values.y *= work.query_sign;
    values.z *= work.query_sign;
    values.w *= work.query_sign;
    *reinterpret_cast<float4*>(queries + lane * Kernel::kPiecePitch + dim) = values;
  }
  for (int key = threadIdx.x / 8; key < Kernel::kKeys; key += Kernel::kThreads / 8) {
    const bool read = there && key < now.count;
    const int64_t at = tile.batch * work.k.batch + (work.key_begin + now.begin + key) * work.k.row +
                       first_dim + dim;
    *reinterpret_cast<float4*>(keys + key * Kernel::kPiecePitch + dim) =
        LoadFour(work.dtype, work.k.data, read ? at : 0, read, work.keys_aligned != 0);
  }
}

// Dims [first_dim, first_dim + 64) of the values.
template <typename Kernel>
__device__ __forceinline__ void LoadValues(float* values, const QueryTile& tile, const KeyTile& now,
                                           int first_dim) {
  const AttentionWork& work = *tile.work;
  const int dim = threadIdx.x % 16 * 4;
  for (int key = threadIdx.x / 16; key < Kernel::kKeys; key += Kernel::kThreads / 16) {
    const bool read = first_dim + dim < work.value_dim && key < now.count;
    const int64_t at = tile.batch * work.v.batch + (work.key_begin + now.begin + key) * work.v.row +
                       first_dim + dim;
    *reinterpret_cast<float4*>(values + key * 64 + dim) =
        LoadFour(work.dtype, work.v.data, read ? at : 0, read, work.keys_aligned != 0);
  }
}

template <typename Kernel>
struct Sums32 {
  float out[Kernel::kGroups][Kernel::kOwnLanes][4];
  float row_max[Kernel::kOwnLanes];  // greatest score so far; -infinity before any
  float sum[Kernel::kOwnLanes];      // of the thread's own keys
};

// The factor of sums when their row maximum rises.
__device__ __forceinline__ float Rescale32(float before, float row_max, float scale) {
  return Exp2((before - (row_max == NegativeInfinity() ? 0.0f : row_max)) * scale);
}

// Adds the run to the total, which gets the run's row maxima, and empties the run.
template <typename Kernel>
__device__ __forceinline__ void Fold(Sums32<Kernel>& run, Sums32<Kernel>& total, float scale) {
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
    const float rescale = Rescale32(total.row_max[i], run.row_max[i], scale);
    total.row_max[i] = run.row_max[i];
    total.sum[i] = total.sum[i] * rescale + run.sum[i];
    run.sum[i] = 0.0f;
#pragma unroll
    for (int g = 0; g < Kernel::kGroups; ++g) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        total.out[g][i][x] = total.out[g][i][x] * rescale + run.out[g][i][x];
        run.out[g][i][x] = 0.0f;
      }
    }
  }
}

template <typename Kernel>
__device__ __forceinline__ void Empty(Sums32<Kernel>& sums) {
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
    sums.row_max[i] = NegativeInfinity();
    sums.sum[i] = 0.0f;
#pragma unroll
    for (int g = 0; g < Kernel::kGroups; ++g) {
#pragma unroll
      for (int x = 0; x < 4; ++x) sums.out[g][i][x] = 0.0f;
    }
  }
}

// Scores of the thread's lanes and keys. Ends with a barrier.
template <typename Kernel>
__device__ __forceinline__ void Score32(float (&scores)[Kernel::kOwnLanes][Kernel::kOwnKeys],
                                        float* pieces, const QueryTile& tile, const KeyTile& now) {
  float* const queries = pieces;
  float* const keys = pieces + Kernel::kLanes * Kernel::kPiecePitch;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
#pragma unroll
    for (int j = 0; j < Kernel::kOwnKeys; ++j) scores[i][j] = 0.0f;
  }
  for (int first = 0; first < tile.work->head_dim; first += Kernel::kPieceDims) {
    LoadPieces<Kernel>(queries, keys, tile, now, first);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < Kernel::kPieceDims; d += 4) {
      float4 key[Kernel::kOwnKeys];
#pragma unroll
      for (int j = 0; j < Kernel::kOwnKeys; ++j) {
        key[j] = *reinterpret_cast<const float4*>(keys + (x + 16 * j) * Kernel::kPiecePitch + d);
      }
#pragma unroll
      for (int i = 0; i < Kernel::kOwnLanes; ++i) {
        const float4 query = *reinterpret_cast<const float4*>(
            queries + (y * Kernel::kOwnLanes + i) * Kernel::kPiecePitch + d);
#pragma unroll
        for (int j = 0; j < Kernel::kOwnKeys; ++j) scores[i][j] = Dot(query, key[j], scores[i][j]);
      }
    }
    __syncthreads();
  }
}

// Changes the scores of the thread's lanes and keys.
template <typename Kernel>
__device__ __forceinline__ void Change32(float (&scores)[Kernel::kOwnLanes][Kernel::kOwnKeys],
                                         const typename Kernel::Walk& walk, const KeyTile& now,
                                         const QueryTile& tile) {
  const WorkChange& change = tile.work->change;
  ScaleOrCap(scores, change);
  if (change.slopes == nullptr) return;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
    const int lane = min(y * Kernel::kOwnLanes + i, tile.lanes - 1);
    const float slope = change.slopes[tile.Head(lane)];
#pragma unroll
    for (int j = 0; j < Kernel::kOwnKeys; ++j) {
      scores[i][j] = Biased(scores[i][j], slope, walk.Distance(tile, now, x + 16 * j, lane));
    }
  }
}

// Sets scores of keys that a lane does not see to -infinity.
template <typename Kernel>
__device__ __forceinline__ void Hide32(float (&scores)[Kernel::kOwnLanes][Kernel::kOwnKeys],
                                       const typename Kernel::Walk& walk, const KeyTile& now,
                                       const QueryTile& tile) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
    const int lane = min(y * Kernel::kOwnLanes + i, tile.lanes - 1);
    const int rows_below = tile.RowsBelow(lane);
    const int start = walk.Start(now, rows_below), limit = walk.Limit(now, rows_below);
#pragma unroll
    for (int j = 0; j < Kernel::kOwnKeys; ++j) {
      const int key = x + 16 * j;
      if (key < start || key >= limit || (walk.ByPositions() && walk.Hides(now, key, lane))) {
        scores[i][j] = NegativeInfinity();
      }
    }
  }
}

// Turns scores into weights in shared memory; `rescale` gets the factors of older sums. Scores are
// subtracted before the scale, and a NaN stays in the sum: see attention_fragments.cuh.
template <typename Kernel>
__device__ __forceinline__ void Weigh32(Sums32<Kernel>& run,
                                        float (&scores)[Kernel::kOwnLanes][Kernel::kOwnKeys],
                                        float (&rescale)[Kernel::kOwnLanes], float* weights,
                                        float scale) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
    float most = NegativeInfinity();
#pragma unroll
    for (int j = 0; j < Kernel::kOwnKeys; ++j) most = fmaxf(most, scores[i][j]);
#pragma unroll
    for (int mask = 1; mask < 16; mask *= 2) most = fmaxf(most, FromPartner(most, mask));
    const float before = run.row_max[i];
    const float row_max = fmaxf(before, most);
    const float used = row_max == NegativeInfinity() ? 0.0f : row_max;
    rescale[i] = Rescale32(before, row_max, scale);
    run.row_max[i] = row_max;
    run.sum[i] *= rescale[i];
#pragma unroll
    for (int j = 0; j < Kernel::kOwnKeys; ++j) {
      const float weight = Exp2((scores[i][j] - used) * scale);
      run.sum[i] += weight;
      weights[(y * Kernel::kOwnLanes + i) * Kernel::kWeightPitch + x + 16 * j] = weight;
    }
  }
}

// run.out = run.out * rescale + weights x values. Begins with a barrier.
template <typename Kernel>
__device__ __forceinline__ void AddValues32(Sums32<Kernel>& run,
                                            const float (&rescale)[Kernel::kOwnLanes],
                                            const float* weights, float* values,
                                            const QueryTile& tile, const KeyTile& now) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int g = 0; g < Kernel::kGroups; ++g) {
    if (g * 64 >= tile.work->value_dim) break;
    if (g > 0) __syncthreads();  // the values before are read
    LoadValues<Kernel>(values, tile, now, g * 64);
    __syncthreads();
    float sums[Kernel::kOwnLanes][4];
#pragma unroll
    for (int i = 0; i < Kernel::kOwnLanes; ++i) {
#pragma unroll
      for (int d = 0; d < 4; ++d) sums[i][d] = 0.0f;
    }
#pragma unroll 4
    for (int key = 0; key < Kernel::kKeys; key += 4) {
      float4 value[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        value[k] = *reinterpret_cast<const float4*>(values + (key + k) * 64 + 4 * x);
      }
#pragma unroll
      for (int i = 0; i < Kernel::kOwnLanes; ++i) {
        const float4 weight = *reinterpret_cast<const float4*>(
            weights + (y * Kernel::kOwnLanes + i) * Kernel::kWeightPitch + key);
        const float of_key[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          sums[i][0] = fmaf(of_key[k], value[k].x, sums[i][0]);
          sums[i][1] = fmaf(of_key[k], value[k].y, sums[i][1]);
          sums[i][2] = fmaf(of_key[k], value[k].z, sums[i][2]);
          sums[i][3] = fmaf(of_key[k], value[k].w, sums[i][3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Kernel::kOwnLanes; ++i) {
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        run.out[g][i][d] = run.out[g][i][d] * rescale[i] + sums[i][d];
      }
    }
  }
}

// Stores the block's rows, or leaves them all to AttendCarefully.
template <typename Kernel>
__device__ __forceinline__ void StoreRows32(const QueryTile& tile, const Sums32<Kernel>& total,
                                            const LaunchNotes& notes) {
  const AttentionWork& work = *tile.work;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  float sum[Kernel::kOwnLanes];
  RowState prior[Kernel::kOwnLanes];
  bool careful = false;
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
    const int lane = y * Kernel::kOwnLanes + i;
    sum[i] = total.sum[i];
#pragma unroll
    for (int mask = 1; mask < 16; mask *= 2) sum[i] += FromPartner(sum[i], mask);
    prior[i] = PriorState(tile, lane);
    bool finite = true;
#pragma unroll
    for (int g = 0; g < Kernel::kGroups; ++g) {
#pragma unroll
      for (int d = 0; d < 4; ++d) finite = finite && IsFinite(total.out[g][i][d]);
    }
    careful = careful || (!finite && sum[i] == sum[i] && lane < tile.lanes);
  }
  // BlockNote is a barrier: a lane's threads read its prior state before one of them writes it.
  if (BlockNote{notes, work}(careful)) return;
#pragma unroll
  for (int i = 0; i < Kernel::kOwnLanes; ++i) {
    const int lane = y * Kernel::kOwnLanes + i;
    if (lane >= tile.lanes) continue;
    if (sum[i] == 0 && InPlace(work)) continue;
    const RowEnd<float> end = EndRow(work, total.row_max[i], sum[i], prior[i]);
    if (x == 0) StoreState(tile, lane, end.state);
    const float* const prior_row = PriorRow(tile, lane);
    const int64_t row_at = tile.At(work.out, lane);
#pragma unroll
    for (int g = 0; g < Kernel::kGroups; ++g) {
      const int dim = 64 * g + 4 * x;
      if (dim >= work.value_dim) continue;
      EndPair(work, end, prior_row, row_at, dim, total.out[g][i][0], total.out[g][i][1]);
      EndPair(work, end, prior_row, row_at, dim + 2, total.out[g][i][2], total.out[g][i][3]);
    }
  }
}

// A block computes tile blockIdx.x of the works. kChanges: all works change scores, else none does.
template <typename Kernel, bool kChanges>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    Attend32(const AttentionWork* works, int count, LaunchNotes notes) {
  float* const pieces = reinterpret_cast<float*>(SharedMemory());
  float* const weights = pieces + Kernel::kPieceFloats;
  const QueryTile tile = FindTile(works, count, blockIdx.x, Kernel::kLanes);
  const AttentionWork& work = *tile.work;
  typename Kernel::Walk walk(
      tile, reinterpret_cast<char*>(weights + Kernel::kLanes * Kernel::kWeightPitch));
  Sums32<Kernel> run, total;
  Empty(run);
  Empty(total);
  int64_t computed = 0;
  int tiles = 0;
  for (KeyTile now = walk.First(); now.count > 0; now = walk.Next(now.begin + Kernel::kKeys)) {
    float scores[Kernel::kOwnLanes][Kernel::kOwnKeys];
    Score32<Kernel>(scores, pieces, tile, now);
    if constexpr (kChanges) Change32<Kernel>(scores, walk, now, tile);
    if (!walk.AllSeen(now)) Hide32<Kernel>(scores, walk, now, tile);
    float rescale[Kernel::kOwnLanes];
    Weigh32<Kernel>(run, scores, rescale, weights, work.score_scale);
    AddValues32<Kernel>(run, rescale, weights, pieces, tile, now);
    __syncthreads();  // weights and values are read
    computed += int64_t{tile.lanes} * now.count;
    if (++tiles % kTilesPerFold == 0) Fold(run, total, work.score_scale);
  }
  Fold(run, total, work.score_scale);
  CountScores(notes, computed);
  StoreRows32<Kernel>(tile, total, notes);
}

}  // namespace hilbert_ring::cuda
