// Attention of 16-bit types by the tensor cores' m16n8k16 products, from compute capability 8.0.
//
// A block of four warps computes one tile of lanes; each warp owns kRowTiles x 16 of them. Keys
// and values come tile by tile into shared memory, one asynchronous copy ahead: values while the
// scores are computed, the next keys while values are summed. Scores stay in registers and become,
// rounded to the data type, the left side of the second product.
//
// Shared rows are kDim elements; their pieces of 16 bytes are permuted by the row's number, so that
// the eight rows of a matrix lie in different banks.
#pragma once

#include <cstdint>

#include "engine/device/cuda/attention_tile.cuh"
#include "engine/device/cuda/attention_work.h"
#include "engine/device/cuda/intrinsics.cuh"

namespace hilbert_ring::cuda {

inline constexpr int kPiece = 8;  // elements of 16 bytes

// float16 weights are scaled by 2^this, so that small ones keep their digits; the greatest of a
// row, 1, is far from its limit of 65504.
template <typename T>
inline constexpr float kWeightShift = 0.0f;
template <>
inline constexpr float kWeightShift<Float16> = 10.0f;

template <typename T, int kDimension, int kRowTilesPerWarp>
struct Tensor16 {
  using Element = T;
  static constexpr int kDim = kDimension;  // head_dim and value_dim are at most this
  static constexpr int kRowTiles = kRowTilesPerWarp;
  static constexpr int kKeys = 64;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  // Blocks on a multiprocessor: what registers allow, as sums and scores take most of them.
  static constexpr int kBlocks = kDim * kRowTiles <= 64 ? 4 : kDim * kRowTiles <= 128 ? 3 : 2;
  static constexpr int kLanes = kWarps * 16 * kRowTiles;
  using Walk = KeyWalk<kLanes, kKeys>;
  static constexpr int kSharedBytes =
      (kLanes + 2 * kKeys) * kDim * static_cast<int>(sizeof(T)) + Walk::kSharedBytes;
};

// The place of a piece in a shared row of kDim elements.
template <int kDim>
__device__ __forceinline__ int PieceAt(int row, int piece) {
  return row * kDim + ((piece ^ (row & 7)) * kPiece);
}

// Rows [first, first + count) of keys or values of a batch; what lies beyond is zero.
template <typename Kernel>
__device__ __forceinline__ void LoadRows(typename Kernel::Element* shared, const WorkView& view,
                                         int64_t batch, const KeyTile& keys, int dim,
                                         bool aligned) {
  using T = typename Kernel::Element;
  constexpr int kPieces = Kernel::kDim / kPiece;
  const T* const base = static_cast<const T*>(view.data) + batch * view.batch;
  const int piece = threadIdx.x % kPieces;
#pragma unroll
  for (int row = threadIdx.x / kPieces; row < Kernel::kKeys; row += Kernel::kThreads / kPieces) {
    const bool read = row < keys.count && piece * kPiece < dim;
    T* const to = shared + PieceAt<Kernel::kDim>(row, piece);
    const T* const from = base + (keys.begin + row) * view.row + piece * kPiece;
    if (aligned) {
      CopyAsync16(to, read ? from : base, read);
    } else {
#pragma unroll
      for (int x = 0; x < kPiece; ++x) {
        reinterpret_cast<uint16_t*>(to)[x] = read ? reinterpret_cast<const uint16_t*>(from)[x] : 0;
      }
    }
  }
}

// The tile's queries, with the sign of the scale.
template <typename Kernel>
__device__ __forceinline__ void LoadQueries(typename Kernel::Element* shared,
                                            const QueryTile& tile) {
  using T = typename Kernel::Element;
  constexpr int kPieces = Kernel::kDim / kPiece;
  const AttentionWork& work = *tile.work;
  const uint32_t flip = work.query_sign < 0 ? 0x80008000u : 0u;
  const int piece = threadIdx.x % kPieces;
  for (int lane = threadIdx.x / kPieces; lane < Kernel::kLanes;
       lane += Kernel::kThreads / kPieces) {
    uint4 values = make_uint4(0, 0, 0, 0);
    if (lane < tile.lanes && piece * kPiece < work.head_dim && work.query_sign != 0) {
      const T* const from =
          static_cast<const T*>(work.q.data) + tile.At(work.q, lane) + piece * kPiece;
      if (work.queries_aligned) {
        values = *reinterpret_cast<const uint4*>(from);
      } else {
        const uint16_t* const halves = reinterpret_cast<const uint16_t*>(from);
        values = make_uint4(
            halves[0] | uint32_t{halves[1]} << 16, halves[2] | uint32_t{halves[3]} << 16,
            halves[4] | uint32_t{halves[5]} << 16, halves[6] | uint32_t{halves[7]} << 16);
      }
      values.x ^= flip;
      values.y ^= flip;
      values.z ^= flip;
      values.w ^= flip;
    }
    *reinterpret_cast<uint4*>(shared + PieceAt<Kernel::kDim>(lane, piece)) = values;
  }
}

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
  // Of the four matrices that a thread's address is for: rows, then pieces, on the left side;
  // pieces, then rows, on the right.
  const int left_row = warp * 16 * Kernel::kRowTiles + thread % 16;
  const int left_piece = thread / 16;
  const int right_row = thread % 8 + thread / 16 * 8;
  const int right_piece = thread / 8 % 2;
#pragma unroll
  for (int x = 0; x < kDim / 16; ++x) {
    uint32_t left[Kernel::kRowTiles][4];
#pragma unroll
    for (int r = 0; r < Kernel::kRowTiles; ++r) {
      LoadMatrices(left[r], queries + PieceAt<kDim>(left_row + 16 * r, 2 * x + left_piece));
    }
#pragma unroll
    for (int n = 0; n < Kernel::kKeys / 16; ++n) {
      uint32_t right[4];
      LoadMatrices(right, keys + PieceAt<kDim>(right_row + 16 * n, 2 * x + right_piece));
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
      left[r][0] = PackPair<T>(weights[r][2 * n][0], weights[r][2 * n][1]);
      left[r][1] = PackPair<T>(weights[r][2 * n][2], weights[r][2 * n][3]);
      left[r][2] = PackPair<T>(weights[r][2 * n + 1][0], weights[r][2 * n + 1][1]);
      left[r][3] = PackPair<T>(weights[r][2 * n + 1][2], weights[r][2 * n + 1][3]);
    }
#pragma unroll
    for (int x = 0; x < Kernel::kDim / 16; ++x) {
      uint32_t right[4];
      LoadTransposed(right,
                     values + PieceAt<Kernel::kDim>(right_row + 16 * n, 2 * x + right_piece));
#pragma unroll
      for (int r = 0; r < Kernel::kRowTiles; ++r) {
        MultiplyAdd<T>(out[r][2 * x], left[r], right[0], right[1]);
        MultiplyAdd<T>(out[r][2 * x + 1], left[r], right[2], right[3]);
      }
    }
  }
}

// Of the rows that a thread holds parts of: [row tile][rows t / 4 and t / 4 + 8].
template <typename Kernel>
struct Softmax16 {
  float reference[Kernel::kRowTiles][2];  // greatest score so far, scaled; -infinity before any
  float sum[Kernel::kRowTiles][2];        // of the thread's own columns
};

// Scores become weights; sums and out are scaled to the new reference.
template <typename Kernel>
__device__ __forceinline__ void Weigh(Softmax16<Kernel>& state,
                                      float (&scores)[Kernel::kRowTiles][Kernel::kKeys / 8][4],
                                      float (&out)[Kernel::kRowTiles][Kernel::kDim / 8][4],
                                      float scale) {
  float decay[Kernel::kRowTiles][2];
  bool decays = false;
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
      const float before = state.reference[r][half];
      const float reference = fmaxf(before, most * scale);
      // A row that has seen nothing keeps weights of 0.
      const float used = reference == NegativeInfinity() ? 0.0f : reference;
      const float shift = kWeightShift<typename Kernel::Element> - used;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < Kernel::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[r][n][e] = Exp2(fmaf(scores[r][n][e], scale, shift));
          sum += scores[r][n][e];
        }
      }
      decay[r][half] = Exp2(before - used);
      decays = decays || reference != before;
      state.reference[r][half] = reference;
      state.sum[r][half] = state.sum[r][half] * decay[r][half] + sum;
    }
  }
  if (!AnyOfWarp(decays)) return;
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int x = 0; x < Kernel::kDim / 8; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[r][x][e] *= decay[r][e / 2];
    }
  }
}

// Scores of keys that a row does not see become -infinity.
template <typename Kernel>
__device__ __forceinline__ void Hide(float (&scores)[Kernel::kRowTiles][Kernel::kKeys / 8][4],
                                     const typename Kernel::Walk& walk, const KeyTile& keys,
                                     const QueryTile& tile, int first_lane, int thread) {
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane = min(first_lane + 16 * r + 8 * half + thread / 4, tile.lanes - 1);
      const int limit = walk.Limit(keys, tile.Row(lane));
#pragma unroll
      for (int n = 0; n < Kernel::kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = 8 * n + 2 * (thread % 4) + e;
          if (key >= limit || (walk.ByPositions() && walk.Hides(keys, key, lane))) {
            scores[r][n][2 * half + e] = NegativeInfinity();
          }
        }
      }
    }
  }
}

template <typename Kernel>
__device__ __forceinline__ void StoreRows(
    const QueryTile& tile, const Softmax16<Kernel>& state,
    const float (&out)[Kernel::kRowTiles][Kernel::kDim / 8][4], int first_lane, int thread) {
  const AttentionWork& work = *tile.work;
  float sum[Kernel::kRowTiles][2], prior_lse[Kernel::kRowTiles][2];
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = state.sum[r][half];
      total += FromPartner(total, 1);
      total += FromPartner(total, 2);
      sum[r][half] = total;
      prior_lse[r][half] = PriorLse(tile, first_lane + 16 * r + 8 * half + thread / 4);
    }
  }
  __syncwarp();  // all of a row's threads have read its lse before one of them writes it
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int lane = first_lane + 16 * r + 8 * half + thread / 4;
      if (lane >= tile.lanes) continue;
      if (sum[r][half] == 0 && InPlace(work)) continue;
      const RowEnd end = EndRow(state.reference[r][half] - kWeightShift<typename Kernel::Element>,
                                sum[r][half], prior_lse[r][half], work.out_scale);
      if (thread % 4 == 0 && work.lse.data != nullptr) {
        static_cast<float*>(work.lse.data)[tile.At(work.lse, lane)] = end.lse;
      }
      const float* const prior =
          work.prior_out.data == nullptr
              ? nullptr
              : static_cast<const float*>(work.prior_out.data) + tile.At(work.prior_out, lane);
      const int64_t row_at = tile.At(work.out, lane);
#pragma unroll
      for (int x = 0; x < Kernel::kDim / 8; ++x) {
        const int dim = 8 * x + 2 * (thread % 4);
        if (dim < work.value_dim) {
          EndPair(work, end, prior, row_at, dim, out[r][x][2 * half], out[r][x][2 * half + 1]);
        }
      }
    }
  }
}

// One block computes tile blockIdx.x of the works and adds its scores to *scores.
template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    Attend16(const AttentionWork* works, int count, unsigned long long* scores_computed) {
  using T = typename Kernel::Element;
  T* const queries = reinterpret_cast<T*>(SharedMemory());
  T* const keys = queries + Kernel::kLanes * Kernel::kDim;
  T* const values = keys + Kernel::kKeys * Kernel::kDim;
  const QueryTile tile = FindTile(works, count, blockIdx.x, Kernel::kLanes);
  const AttentionWork& work = *tile.work;
  typename Kernel::Walk walk(tile, reinterpret_cast<char*>(values + Kernel::kKeys * Kernel::kDim));
  const bool aligned = work.keys_aligned != 0;
  const int warp = threadIdx.x / 32, thread = threadIdx.x % 32;
  const int first_lane = warp * 16 * Kernel::kRowTiles;

  float out[Kernel::kRowTiles][Kernel::kDim / 8][4];
  Softmax16<Kernel> state;
#pragma unroll
  for (int r = 0; r < Kernel::kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.reference[r][half] = NegativeInfinity();
      state.sum[r][half] = 0.0f;
    }
#pragma unroll
    for (int x = 0; x < Kernel::kDim / 8; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[r][x][e] = 0.0f;
    }
  }

  KeyTile now = walk.Next(work.key_begin);
  if (now.count > 0) LoadRows<Kernel>(keys, work.k, tile.batch, now, work.head_dim, aligned);
  LoadQueries<Kernel>(queries, tile);
  int64_t computed = 0;
  while (now.count > 0) {
    CopyAsyncWait();
    __syncthreads();  // the keys are there, and nobody reads the values before
    LoadRows<Kernel>(values, work.v, tile.batch, now, work.value_dim, aligned);
    float scores[Kernel::kRowTiles][Kernel::kKeys / 8][4];
    Score<Kernel>(scores, queries, keys, warp, thread);
    CopyAsyncWait();
    __syncthreads();  // the values are there, and nobody reads the keys any more
    const KeyTile next = walk.Next(now.begin + Kernel::kKeys);
    if (next.count > 0) LoadRows<Kernel>(keys, work.k, tile.batch, next, work.head_dim, aligned);
    if (!now.all_seen) Hide<Kernel>(scores, walk, now, tile, first_lane, thread);
    Weigh<Kernel>(state, scores, out, work.score_scale);
    AddValues<Kernel>(out, scores, values, thread);
    computed += int64_t{tile.lanes} * now.count;
    now = next;
  }
  StoreRows<Kernel>(tile, state, out, first_lane, thread);
  CountScores(scores_computed, computed);
}

}  // namespace hilbert_ring::cuda
