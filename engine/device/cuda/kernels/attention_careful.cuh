// Attention of tiles that another kernel leaves: their weights are finite but sums of weight times
// value are not, or the scale is at an end of float32.
//
// The other kernels multiply all weights of a tile of keys with all of its values. 0 times a value
// that is not finite is NaN, which spoils rows that do not see the key. Values near the end of
// their type's range overflow float32 in sums whose average does not. Here such a value is added
// only to rows that see its key, and sums are float64. Scores are float32 as elsewhere. Weights are
// float64 and never underflow to 0: an infinity keeps its sign.
//
// A block of 128 threads takes 16 lanes over tiles of 64 keys. It is correct rather than fast.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_change.cuh"
#include "engine/device/cuda/kernels/attention_rows.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

inline constexpr double kLeastWeight = 1e-300;  // far below the precision of float32

template <int kDimension>
struct Careful {
  static constexpr int kThreads = 128;
  static constexpr int kLanes = 16;
  static constexpr int kKeys = 64;
  static constexpr int kMostHeadDim = 256;
  // A thread owns scores of a key and kScoreLanes lanes, sums of two dims and kValueLanes lanes.
  static constexpr int kScoreLanes = kLanes * kKeys / kThreads;
  static constexpr int kPairs = kDimension / 2;
  static constexpr int kValueLanes = kLanes * kPairs / kThreads;
  using Walk = KeyWalk<kLanes, kKeys>;

  struct Shared {
    double weights[kKeys][kLanes];  // -0 if the lane does not see the key
    double rescale[kLanes];         // of older sums
    double sum[kLanes];             // of weights
    RowEnd<double> end[kLanes];
    float max[kLanes];
    float scores[kLanes][kKeys + 1];
    float queries[kLanes][kMostHeadDim];
    alignas(int64_t) char walk[Walk::kSharedBytes];
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= 48 << 10, "what a block has without asking");
};

__device__ __forceinline__ bool IsHidden(double weight) { return copysign(1.0, weight) < 0; }

// Loads the tile's queries, with the scale's sign, and clears the softmax.
template <typename Kernel>
__device__ inline void BeginCarefully(typename Kernel::Shared& shared, const QueryTile& tile) {
  const AttentionWork& work = *tile.work;
  for (int i = threadIdx.x; i < Kernel::kLanes * work.head_dim; i += Kernel::kThreads) {
    const int lane = i / work.head_dim, dim = i % work.head_dim;
    const bool there = lane < tile.lanes;
    shared.queries[lane][dim] =
        there ? Widen(work.dtype, work.q.data, tile.At(work.q, lane) + dim) * work.query_sign : 0;
  }
  const int lane = threadIdx.x;
  if (lane < Kernel::kLanes) {
    shared.max[lane] = NegativeInfinity();
    shared.sum[lane] = 0;
  }
  __syncthreads();
}

// Computes the weights of a tile of keys and adds them to the sums of weights.
template <typename Kernel>
__device__ inline void WeighCarefully(typename Kernel::Shared& shared,
                                      const typename Kernel::Walk& walk, const KeyTile& keys,
                                      const QueryTile& tile) {
  const AttentionWork& work = *tile.work;
  const int key = static_cast<int>(threadIdx.x) % Kernel::kKeys;
  const int first = static_cast<int>(threadIdx.x) / Kernel::kKeys * Kernel::kScoreLanes;
  float scores[Kernel::kScoreLanes] = {};
  if (key < keys.count) {
    const int64_t at = tile.batch * work.k.batch + (work.key_begin + keys.begin + key) * work.k.row;
    for (int dim = 0; dim < work.head_dim; ++dim) {
      const float element = Widen(work.dtype, work.k.data, at + dim);
#pragma unroll
      for (int i = 0; i < Kernel::kScoreLanes; ++i) {
        scores[i] = fmaf(shared.queries[first + i][dim], element, scores[i]);
      }
    }
  }
  bool hidden[Kernel::kScoreLanes];
#pragma unroll
  for (int i = 0; i < Kernel::kScoreLanes; ++i) {
    const int lane = min(first + i, tile.lanes - 1);
    const int rows_below = tile.RowsBelow(lane);
    hidden[i] = key < walk.Start(keys, rows_below) || key >= walk.Limit(keys, rows_below) ||
                (walk.ByPositions() && walk.Hides(keys, key, lane));
    const bool biased = work.change.slopes != nullptr;
    if (biased || work.change.softcap > 0) {
      scores[i] = ChangedExactly(work.change, scores[i],
                                 biased ? work.change.slopes[tile.Head(lane)] : 0.0f,
                                 biased ? walk.Distance(tile, keys, key, lane) : 0.0f);
    }
    if (hidden[i]) scores[i] = NegativeInfinity();
    shared.scores[first + i][key] = scores[i];
  }
  __syncthreads();
  const int lane = threadIdx.x;
  if (lane < Kernel::kLanes) {
    const float before = shared.max[lane];
    float most = before;
    for (int j = 0; j < Kernel::kKeys; ++j) most = fmaxf(most, shared.scores[lane][j]);
    const float used = most == NegativeInfinity() ? 0.0f : most;
    shared.rescale[lane] = fmax(ExactWeight(work, before, used), kLeastWeight);
    shared.max[lane] = most;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Kernel::kScoreLanes; ++i) {
    const float most = shared.max[first + i];
    const float used = most == NegativeInfinity() ? 0.0f : most;
    const double weight = ExactWeight(work, scores[i], used);
    shared.weights[key][first + i] = hidden[i]                         ? -0.0
                                     : scores[i] == NegativeInfinity() ? 0.0
                                     : weight < kLeastWeight           ? kLeastWeight
                                                                       : weight;
  }
  __syncthreads();
  if (lane < Kernel::kLanes) {
    double sum = shared.sum[lane] * shared.rescale[lane];
    for (int j = 0; j < Kernel::kKeys; ++j) sum += shared.weights[j][lane];
    shared.sum[lane] = sum;
  }
}

// Adds to the thread's sums of values: dims `dim` and `dim` + 1, lanes from `first` on.
template <typename Kernel>
__device__ inline void AddCarefully(double (&out)[Kernel::kValueLanes][2],
                                    const typename Kernel::Shared& shared, const KeyTile& keys,
                                    const QueryTile& tile, int first, int dim) {
  const AttentionWork& work = *tile.work;
#pragma unroll
  for (int i = 0; i < Kernel::kValueLanes; ++i) {
    out[i][0] *= shared.rescale[first + i];
    out[i][1] *= shared.rescale[first + i];
  }
  for (int key = 0; key < keys.count; ++key) {
    const int64_t at =
        tile.batch * work.v.batch + (work.key_begin + keys.begin + key) * work.v.row + dim;
    const float values[2] = {Widen(work.dtype, work.v.data, at),
                             Widen(work.dtype, work.v.data, at + 1)};
    const bool finite = IsFinite(values[0]) && IsFinite(values[1]);
#pragma unroll
    for (int i = 0; i < Kernel::kValueLanes; ++i) {
      const double weight = shared.weights[key][first + i];
      if (!finite && IsHidden(weight)) continue;
      out[i][0] += weight * values[0];
      out[i][1] += weight * values[1];
    }
  }
}

// Computes the results of up to Kernel::kLanes lanes.
template <typename Kernel>
__device__ inline void AttendLanes(typename Kernel::Shared& shared, const QueryTile& tile) {
  const AttentionWork& work = *tile.work;
  typename Kernel::Walk walk(tile, shared.walk);
  BeginCarefully<Kernel>(shared, tile);
  const int dim = 2 * (static_cast<int>(threadIdx.x) % Kernel::kPairs);
  const int first = static_cast<int>(threadIdx.x) / Kernel::kPairs * Kernel::kValueLanes;
  const bool there = dim < work.value_dim;
  double out[Kernel::kValueLanes][2] = {};
  for (KeyTile now = walk.First(); now.count > 0; now = walk.Next(now.begin + Kernel::kKeys)) {
    WeighCarefully<Kernel>(shared, walk, now, tile);
    if (there) AddCarefully<Kernel>(out, shared, now, tile, first, dim);
    __syncthreads();  // all weights are read
  }
  const int lane = threadIdx.x;
  if (lane < tile.lanes) {
    const RowEnd<double> end =
        EndRow(work, shared.max[lane], shared.sum[lane], PriorState(tile, lane));
    if (end.sees || !InPlace(work)) StoreState(tile, lane, end.state);
    shared.end[lane] = end;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Kernel::kValueLanes; ++i) {
    if (!there || first + i >= tile.lanes) continue;
    const RowEnd<double>& end = shared.end[first + i];
    if (!end.sees && InPlace(work)) continue;
    const float* const prior = PriorRow(tile, first + i);
    float results[2];
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      results[x] = EndExactly(work, end, out[i][x], end.merges ? prior[dim + x] : 0.0f);
    }
    StorePair(work, tile.At(work.out, first + i) + dim, results[0], results[1]);
  }
}

// Computes the launch's noted tiles, of lanes_per_tile lanes each.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    AttendCarefully(const AttentionWork* works, int count, LaunchNotes notes, int64_t tiles,
                    int lanes_per_tile) {
  if (*notes.careful == 0) return;
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(SharedMemory());
  const int64_t parts = (lanes_per_tile + Kernel::kLanes - 1) / Kernel::kLanes;
  for (int64_t i = blockIdx.x; i < tiles * parts; i += gridDim.x) {
    if (notes.careful_tiles[i / parts] == 0) continue;
    const QueryTile tile = FindTile(works, count, i / parts, lanes_per_tile);
    const int first = static_cast<int>(i % parts) * Kernel::kLanes;
    if (first >= tile.lanes) continue;
    AttendLanes<Kernel>(shared, PartOf(tile, first, Kernel::kLanes));
    __syncthreads();  // all of shared.end is read
  }
}

}  // namespace hilbert_ring::cuda
