// Keys or values in global memory, from which the bulk tensor engine copies boxes (CopyBox).
#pragma once

namespace hilbert_ring::cuda {

// A box: rows of keys or values, and elements of a row. Its copy is a panel (attention_panels.cuh).
inline constexpr int kMapRows = 128;
inline constexpr int kMapElements = 64;

// The bytes of a CUtensorMap, at a multiple of 128 on the device too.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

}  // namespace hilbert_ring::cuda
