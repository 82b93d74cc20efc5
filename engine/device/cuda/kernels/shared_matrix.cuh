// The place of a matrix of 16-bit elements in shared memory, in the form of Hopper's products.
//
// The PTX ISA defines the descriptor for wgmma: bits 0 to 13 the first byte's address, 16 to 29 and
// 32 to 45 two strides, all in units of 16 bytes; 49 to 51 the first row's place among eight; 62
// and 63 the permutation of pieces. A panel uses only the stride of eight rows
// (attention_panels.cuh).
#pragma once

#include <cstdint>

namespace hilbert_ring::cuda {

// A panel, or its part from a piece of its first row or from a row that is a multiple of 8.
struct SharedMatrix {
  uint64_t descriptor;
};

// address: in shared memory, a multiple of 1024.
__host__ __device__ constexpr SharedMatrix PanelAt(uint32_t address) {
  constexpr uint64_t kEightRows = 1024 / 16;
  constexpr uint64_t kPermutedIn128Bytes = 1;
  return {(address & 0x3ffff) / 16 | kEightRows << 16 | kEightRows << 32 |
          kPermutedIn128Bytes << 62};
}

// The part from `elements` on: pieces of 8 of the first row, or whole rows of 64.
__host__ __device__ constexpr SharedMatrix PartAt(SharedMatrix matrix, int elements) {
  return {matrix.descriptor + static_cast<uint64_t>(elements / 8)};
}

}  // namespace hilbert_ring::cuda
