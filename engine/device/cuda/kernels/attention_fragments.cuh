// Softmax, masks and results of scores in registers, as fragments of matrix products.
//
// Thread t of a warp holds parts of rows t / 4 and t / 4 + 8 of each 16 rows: columns 2 (t % 4) and
// the next of every 8. Sums of mma.m16n8k16 and of wgmma.m64nNk16 have this layout.
//
// A Kernel has Element, kRowTiles (of a warp), kDim (a multiple of 64), kKeys (of a tile) and Walk.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_change.cuh"
#include "engine/device/cuda/kernels/attention_rows.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/exp2_polynomial.cuh"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

// float16 weights are scaled by 2^this, to keep small weights' digits, far below the limit of
// 65504.
template <typename T>
inline constexpr float kWeightShift = 0.0f;
template <>
inline constexpr float kWeightShift<Float16> = 10.0f;

template <typename T>
inline constexpr float kWeightUnit = 1.0f;
template <>
inline constexpr float kWeightUnit<Float16> = 0x1p-10f;

// State of the rows that a thread holds parts of: [row tile][rows t / 4 and t / 4 + 8].
template <typename Kernel>
struct Softmax16 {
  float row_max[Kernel::kRowTiles][2];  // greatest score so far; -infinity before any
  float sum[Kernel::kRowTiles][2];      // of the thread's own columns
};

template <typename Kernel>
__device__ __forceinline__ void Clear(Softmax16<Kernel>& state,
                                      float (&out)[Kernel::kRowTiles][Kernel::kDim / 8][4]) {
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.row_max[r][half] = NegativeInfinity();
      state.sum[r][half] = 0.0f;
    }
#pragma unroll
    for (int x = 0; x < Kernel::kDim / 8; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[r][x][e] = 0.0f;
    }
  }
}

// Returns whether weights of keys 8 n to 8 n + 7 are polynomials: each kPolynomialEvery-th group,
// if any.
template <typename Kernel>
__host__ __device__ constexpr bool IsPolynomial(int n) {
  if constexpr (requires { Kernel::kPolynomialEvery; }) {
    return Kernel::kPolynomialEvery > 0 &&
           n % Kernel::kPolynomialEvery == Kernel::kPolynomialEvery - 1;
  } else {
    return false;
  }
}

// Factors of sums of weights when a row's maximum rises.
template <typename Kernel>
struct Rescale16 {
  float factor[Kernel::kRowTiles][2];
  bool needed = false;  // by some row of the thread
};

// The greatest product of a row's maximum and the scale that may be rounded before scores are
// subtracted from it. A row's weights are then wrong by the same 2^-24 of it or less, earlier
// weights by another: 2^-15 in all. Rounding a weight to 16 bits costs eight times that.
inline constexpr float kMostRounded = 256.0f;

// Turns scores into weights of the new row maximum and rescales sums of weights; RescaleOut
// rescales sums of values. Beyond kMostRounded scores are subtracted before the scale, at an
// instruction more a score: differences are then exact, and the greatest key's weight is 1 at any
// magnitude. A NaN among the scores does not reach the row maximum, but stays in the sum.
template <typename Kernel>
__device__ __forceinline__ Rescale16<Kernel> Weigh(
    Softmax16<Kernel>& state, float (&scores)[Kernel::kRowTiles][Kernel::kKeys / 8][4],
    float scale) {
  constexpr float kShift = kWeightShift<typename Kernel::Element>;
  Rescale16<Kernel> rescale;
  float before[Kernel::kRowTiles][2], used[Kernel::kRowTiles][2];
  bool is_large = false;  // of some row of the thread
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = NegativeInfinity();
#pragma unroll
      for (int n = 0; n < Kernel::kKeys / 8; ++n) {
        most = fmaxf(most, fmaxf(scores[r][n][2 * half], scores[r][n][2 * half + 1]));
      }
      most = fmaxf(most, FromPartner(most, 1));
      most = fmaxf(most, FromPartner(most, 2));
      before[r][half] = state.row_max[r][half];
      const float row_max = fmaxf(before[r][half], most);
      // A row without visible keys keeps weights of 0.
      used[r][half] = row_max == NegativeInfinity() ? 0.0f : row_max;
      is_large = is_large || !(fabsf(used[r][half] * scale) <= kMostRounded);
      rescale.needed = rescale.needed || row_max != before[r][half];
      state.row_max[r][half] = row_max;
    }
  }
  const auto make_weights = [&](const auto& power_of) {
#pragma unroll
    for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < Kernel::kKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const float power = power_of(scores[r][n][e], used[r][half]);
            scores[r][n][e] = IsPolynomial<Kernel>(n) ? Exp2Polynomial(power) : Exp2(power);
            sum += scores[r][n][e];
          }
        }
        rescale.factor[r][half] = Exp2((before[r][half] - used[r][half]) * scale);
        state.sum[r][half] = state.sum[r][half] * rescale.factor[r][half] + sum;
      }
    }
  };
  if (AnyOfWarp(is_large)) {
    make_weights([&](float score, float most) { return fmaf(score - most, scale, kShift); });
  } else {
    make_weights(
        [&](float score, float most) { return fmaf(score, scale, fmaf(-most, scale, kShift)); });
  }
  return rescale;
}

template <typename Kernel>
__device__ __forceinline__ void RescaleOut(const Rescale16<Kernel>& rescale,
                                           float (&out)[Kernel::kRowTiles][Kernel::kDim / 8][4]) {
  if (!AnyOfWarp(rescale.needed)) return;
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int x = 0; x < Kernel::kDim / 8; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[r][x][e] *= rescale.factor[r][e / 2];
    }
  }
}

// The weights of 16 rows and keys [16 n, 16 n + 16): the left side of a product.
template <typename T, int kTiles>
__device__ __forceinline__ void PackWeights(uint32_t (&left)[4], const float (&weights)[kTiles][4],
                                            int n) {
  left[0] = PackPair<T>(weights[2 * n][0], weights[2 * n][1]);
  left[1] = PackPair<T>(weights[2 * n][2], weights[2 * n][3]);
  left[2] = PackPair<T>(weights[2 * n + 1][0], weights[2 * n + 1][1]);
  left[3] = PackPair<T>(weights[2 * n + 1][2], weights[2 * n + 1][3]);
}

// Changes the scores of one warp's lanes.
template <typename Kernel, typename Walk>
__device__ __forceinline__ void Change(float (&scores)[Kernel::kRowTiles][Kernel::kKeys / 8][4],
                                       const Walk& walk, const KeyTile& keys, const QueryTile& tile,
                                       int first_lane, int thread) {
  const WorkChange& change = tile.work->change;
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) ScaleOrCap(scores[r], change);
  if (change.slopes == nullptr) return;
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane = min(first_lane + 16 * r + 8 * half + thread / 4, tile.lanes - 1);
      const float slope = change.slopes[tile.Head(lane)];
#pragma unroll
      for (int n = 0; n < Kernel::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[r][n][2 * half + e];
          score =
              Biased(score, slope, walk.Distance(tile, keys, 8 * n + 2 * (thread % 4) + e, lane));
        }
      }
    }
  }
}

// Sets scores of 16 rows to -infinity if hidden(key, half). key: from the thread's first column;
// half: the thread's row.
template <typename Kernel, typename Hidden>
__device__ __forceinline__ void HideIf(float (&scores)[Kernel::kKeys / 8][4],
                                       const Hidden& hidden) {
#pragma unroll
  for (int n = 0; n < Kernel::kKeys / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scores[n][e] = hidden(8 * n + e % 2, e / 2) ? NegativeInfinity() : scores[n][e];
    }
  }
}

// Hides keys that rows do not see by index. rows_below: of the thread's two rows, from the query
// tile's first.
template <typename Kernel, typename Walk>
__device__ __forceinline__ void HideOutside(float (&scores)[Kernel::kKeys / 8][4], const Walk& walk,
                                            const KeyTile& keys, const int (&rows_below)[2],
                                            int thread) {
  const int own = 2 * (thread % 4);
  const int limit[2] = {walk.Limit(keys, rows_below[0]) - own,
                        walk.Limit(keys, rows_below[1]) - own};
  HideIf<Kernel>(scores, [&](int key, int half) { return key >= limit[half]; });
  if (!walk.HidesStart(keys)) return;
  const int start[2] = {walk.Start(keys, rows_below[0]) - own,
                        walk.Start(keys, rows_below[1]) - own};
  HideIf<Kernel>(scores, [&](int key, int half) { return key < start[half]; });
}

// Hides keys that a row of one warp's lanes does not see.
template <typename Kernel, typename Walk>
__device__ __forceinline__ void Hide(float (&scores)[Kernel::kRowTiles][Kernel::kKeys / 8][4],
                                     const Walk& walk, const KeyTile& keys, const QueryTile& tile,
                                     int first_lane, int thread) {
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
    const int lane = first_lane + 16 * r + thread / 4;
    const int lanes[2] = {min(lane, tile.lanes - 1), min(lane + 8, tile.lanes - 1)};
    const int rows_below[2] = {tile.RowsBelow(lanes[0]), tile.RowsBelow(lanes[1])};
    HideOutside<Kernel>(scores[r], walk, keys, rows_below, thread);
    // Scores of positions beyond the limit, which are another tile's, are hidden already.
    if (!walk.ByPositions()) continue;
    HideIf<Kernel>(scores[r], [&](int key, int half) {
      return walk.Hides(keys, 2 * (thread % 4) + key, lanes[half]);
    });
  }
}

// `rows` of StoreRows that leave all rows to registers.
struct DirectRows {
  __device__ bool Takes(const AttentionWork&) const { return false; }
  __device__ void Put(int, int, float, float) const {}
  __device__ void Send(const QueryTile&, int, int) const {}
};

// Stores the tile's rows, or leaves them all to AttendCarefully if `note` returns true. Like
// BlockNote, `note` is a barrier of all threads with rows of the tile. `rows` stores the tiles that
// it takes.
template <typename Kernel, typename Note, typename Rows = DirectRows>
__device__ __forceinline__ void StoreRows(
    const QueryTile& tile, const Softmax16<Kernel>& state,
    const float (&out)[Kernel::kRowTiles][Kernel::kDim / 8][4], int first_lane, int thread,
    const Note& note, const Rows& rows = {}) {
  const AttentionWork& work = *tile.work;
  constexpr float kUnit = kWeightUnit<typename Kernel::Element>;
  float sum[Kernel::kRowTiles][2];
  RowState prior[Kernel::kRowTiles][2];
  bool careful = false;
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane = first_lane + 16 * r + 8 * half + thread / 4;
      float total = state.sum[r][half];
      total += FromPartner(total, 1);
      total += FromPartner(total, 2);
      sum[r][half] = total * kUnit;
      prior[r][half] = PriorState(tile, lane);
      bool finite = true;
#pragma unroll
      for (int x = 0; x < Kernel::kDim / 8; ++x) {
        finite = finite && IsFinite(out[r][x][2 * half]) && IsFinite(out[r][x][2 * half + 1]);
      }
      careful = careful || (!finite && total == total && lane < tile.lanes);
    }
  }
  // `note` is a barrier: a row's threads read its prior state before one of them writes it.
  if (note(careful)) return;
  const bool taken = rows.Takes(work);
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane = first_lane + 16 * r + 8 * half + thread / 4;
      if (lane >= tile.lanes) continue;
      if (sum[r][half] == 0 && InPlace(work)) continue;
      const RowEnd<float> end = EndRow(work, state.row_max[r][half], sum[r][half], prior[r][half]);
      if (thread % 4 == 0) StoreState(tile, lane, end.state);
      const float* const prior_row = PriorRow(tile, lane);
      const int64_t row_at = tile.At(work.out, lane);
#pragma unroll
      for (int x = 0; x < Kernel::kDim / 8; ++x) {
        const int dim = 8 * x + 2 * (thread % 4);
        if (taken) {
          rows.Put(lane, dim, out[r][x][2 * half] * kUnit * end.own,
                   out[r][x][2 * half + 1] * kUnit * end.own);
        } else if (dim < work.value_dim) {
          EndPair(work, end, prior_row, row_at, dim, out[r][x][2 * half] * kUnit,
                  out[r][x][2 * half + 1] * kUnit);
        }
      }
    }
  }
  if (taken) rows.Send(tile, first_lane, thread);
}

}  // namespace hilbert_ring::cuda
