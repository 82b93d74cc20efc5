// Results of a consumer's warp pass through shared memory. A thread has two of each eight elements
// of a row, but memory is written in adjacent pieces of 16 bytes.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_panels.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

template <typename T>
inline constexpr int kWorkTypeOf = kWorkBFloat16;
template <>
inline constexpr int kWorkTypeOf<Float16> = kWorkFloat16;

// `rows` of StoreRows that use the memory of the warp's queries, after their last product.
template <typename Kernel>
struct StagedRows {
  using T = typename Kernel::Element;
  static constexpr int kWarpRows = 16;

  T* shared;  // panels of kLanes rows

  // Takes results of the queries' type, in rows at multiples of 16 bytes. Registers store others.
  __device__ bool Takes(const AttentionWork& work) const {
    if (work.out_dtype != kWorkTypeOf<T> || work.prior_out.data != nullptr) return false;
    const int64_t elements = work.out.batch | work.out.row | work.out.head;
    return reinterpret_cast<uintptr_t>(work.out.data) % 16 == 0 && elements % kPiece == 0;
  }

  // Elements dim and dim + 1 of a lane's row.
  __device__ void Put(int lane, int dim, float first, float second) const {
    T* const to = shared + PieceAt(Kernel::kLanes, lane, dim / kPiece) + dim % kPiece;
    *reinterpret_cast<uint32_t*>(to) = PackPair<T>(first, second);
  }

  // Stores all elements that the warp's threads have put.
  __device__ void Send(const QueryTile& tile, int first_lane, int thread) const {
    constexpr int kPieces = Kernel::kDim / kPiece;
    __syncwarp();
    const WorkView& out = tile.work->out;
    const int piece = thread % kPieces;
    if (piece * kPiece >= tile.work->value_dim) return;
#pragma unroll 4
    for (int row = thread / kPieces; row < kWarpRows; row += 32 / kPieces) {
      const int lane = first_lane + row;
      if (lane >= tile.lanes) return;
      *reinterpret_cast<uint4*>(static_cast<T*>(out.data) + tile.At(out, lane) + piece * kPiece) =
          *reinterpret_cast<const uint4*>(shared + PieceAt(Kernel::kLanes, lane, piece));
    }
  }
};

}  // namespace hilbert_ring::cuda
