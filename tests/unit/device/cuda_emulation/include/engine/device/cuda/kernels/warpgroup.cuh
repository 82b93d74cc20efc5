// Products of a warpgroup on the host, by the PTX ISA. Replaces the header of the same name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/shared_matrix.cuh"
#include "tests/unit/device/cuda_emulation/warpgroup_products.h"

namespace hilbert_ring::cuda {

inline SharedMatrix MatrixAt(const void* panel) { return PanelAt(emulation::AddressOf(panel)); }

inline void PublishToProducts() { emulation::PublishShared(); }
inline void WarpgroupBegin() { emulation::BeginProducts(); }
inline void WarpgroupCommit() { emulation::CommitProducts(); }
template <int kLeft>
void WarpgroupWait() {
  emulation::AwaitProducts(kLeft);
}
inline void WarpgroupHold(uint32_t&) {}
template <typename Register, int kTiles>
void WarpgroupHold(Register (&)[kTiles][4]) {}

template <typename T>
float BitsToFloat(uint16_t bits) {
  return ToFloat(T{bits});
}

template <typename T>
void MultiplyRows(float (&sums)[16][4], SharedMatrix a, SharedMatrix b, bool add) {
  emulation::StartProduct({.sums = sums[0],
                           .columns = 128,
                           .add = add,
                           .to_float = BitsToFloat<T>,
                           .left_matrix = a.descriptor,
                           .right_matrix = b.descriptor,
                           .rows_are_columns = true});
}

template <typename T, int kFirst, int kTiles>
void MultiplyColumns(float (&sums)[kTiles][4], const uint32_t (&a)[4], SharedMatrix b) {
  static_assert(kFirst + 8 <= kTiles);
  emulation::StartProduct({.sums = sums[kFirst],
                           .columns = 64,
                           .to_float = BitsToFloat<T>,
                           .left = a,
                           .right_matrix = b.descriptor});
}

}  // namespace hilbert_ring::cuda
