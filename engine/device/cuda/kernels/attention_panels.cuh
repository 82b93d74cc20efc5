// Copies of rows of 16-bit elements into shared memory.
//
// Shared rows lie in panels of 64 elements, 128 bytes a row. A row's number permutes its eight
// pieces of 16 bytes, so that a column of pieces of eight rows lies in different banks. Hopper's
// products call the layout a 128-byte swizzle: a panel begins at a multiple of 1024 bytes.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

inline constexpr int kPiece = 8;           // elements of 16 bytes
inline constexpr int kPanel = 64;          // elements of a row in one panel
inline constexpr int kPanelPieces = 8;     // pieces of such a row
inline constexpr int kSharedAlign = 1024;  // bytes, of a panel

// The first element of a piece among `rows` shared rows.
__device__ __forceinline__ int PieceAt(int rows, int row, int piece) {
  constexpr int kMask = kPanelPieces - 1;  // a power of two
  return (piece / kPanelPieces * rows + row) * kPanel + ((piece & kMask) ^ (row & kMask)) * kPiece;
}

// A thread's share in copying rows of keys or values of a batch: one piece of each row.
template <typename Kernel>
struct RowSource {
  using Element = typename Kernel::Element;
  static constexpr int kPieces = Kernel::kDim / kPiece;
  static constexpr int kStep = Kernel::kThreads / kPieces;  // rows that the block copies at once

  // dim: head_dim or value_dim.
  __device__ RowSource(const WorkView& view, const QueryTile& tile, int dim)
      : row(view.row), inside(Piece() * kPiece < dim) {
    from = static_cast<const Element*>(view.data) + tile.batch * view.batch +
           (tile.work->key_begin + First()) * row + Piece() * kPiece;
  }

  __device__ static int First() { return static_cast<int>(threadIdx.x) / kPieces; }
  __device__ static int Piece() { return static_cast<int>(threadIdx.x) % kPieces; }

  const Element* from;  // in row First() of the work's keys
  int64_t row;          // elements from one row to the next
  bool inside;          // whether rows have such a piece
};

// Loads rows [keys.begin, keys.begin + keys.count) into Kernel::kKeys shared rows, zeros beyond.
// `aligned`: rows begin at multiples of 16 bytes.
template <typename Kernel>
__device__ __forceinline__ void LoadRows(typename Kernel::Element* shared,
                                         const RowSource<Kernel>& source, const KeyTile& keys,
                                         bool aligned) {
  constexpr int kStep = RowSource<Kernel>::kStep;
  constexpr int kSteps = (Kernel::kKeys + kStep - 1) / kStep;
  const int first = source.First(), piece = source.Piece();
  const int rows = source.inside ? keys.count : 0;
  const int first_at = PieceAt(Kernel::kKeys, first, piece);
  // A piece has the same place in its row after whole groups of eight rows.
  const auto at = [&](int n) {
    return shared + (kStep % kPanelPieces == 0 ? first_at + n * kStep * kPanel
                                               : PieceAt(Kernel::kKeys, first + n * kStep, piece));
  };
  const typename Kernel::Element* from = source.from + keys.begin * source.row;
  const int64_t step = kStep * source.row;
  if (aligned) {
#pragma unroll
    for (int n = 0; n < kSteps; ++n, from += step) {
      const int row = first + n * kStep;
      if ((n + 1) * kStep <= Kernel::kKeys || row < Kernel::kKeys) {
        CopyAsync16(at(n), from, row < rows);
      }
    }
    return;
  }
#pragma unroll 1
  for (int n = 0, row = first; row < Kernel::kKeys; ++n, row += kStep, from += step) {
    auto* const to = reinterpret_cast<uint16_t*>(at(n));
#pragma unroll
    for (int x = 0; x < kPiece; ++x) {
      to[x] = row < rows ? reinterpret_cast<const uint16_t*>(from)[x] : 0;
    }
  }
}

// Two elements times a scale of 0: zeros, or NaN if an element is not finite.
template <typename T>
__device__ __forceinline__ uint32_t TimesZero(uint32_t pair) {
  const auto half = [](uint32_t bits) {
    const uint16_t short_bits = static_cast<uint16_t>(bits);
    return ToFloat(*reinterpret_cast<const T*>(&short_bits)) * 0.0f;
  };
  return PackPair<T>(half(pair), half(pair >> 16));
}

// Loads the tile's queries, with the scale's sign. kThreads threads call it; `thread` is this one.
template <typename Kernel, int kThreads>
__device__ __forceinline__ void LoadQueries(typename Kernel::Element* shared, const QueryTile& tile,
                                            int thread) {
  using T = typename Kernel::Element;
  constexpr int kPieces = Kernel::kDim / kPiece;
  const AttentionWork& work = *tile.work;
  const uint32_t flip = work.query_sign < 0 ? 0x80008000u : 0u;
  const int piece = thread % kPieces;
  for (int lane = thread / kPieces; lane < Kernel::kLanes; lane += kThreads / kPieces) {
    uint4 values = make_uint4(0, 0, 0, 0);
    if (lane < tile.lanes && piece * kPiece < work.head_dim) {
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
      if (work.query_sign == 0) {
        values = make_uint4(TimesZero<T>(values.x), TimesZero<T>(values.y), TimesZero<T>(values.z),
                            TimesZero<T>(values.w));
      }
    }
    *reinterpret_cast<uint4*>(shared + PieceAt(Kernel::kLanes, lane, piece)) = values;
  }
}

}  // namespace hilbert_ring::cuda
