// How the bulk tensor engine is told of keys or values in global memory, of which it then copies
// boxes by itself (CopyBox of pipeline.cuh).
#pragma once

namespace hilbert_ring::cuda {

// Of keys or values that one copy brings, each of so many elements: a panel (attention_panels.cuh).
inline constexpr int kMapRows = 128;
inline constexpr int kMapElements = 64;

// Opaque: the bytes of a CUtensorMap. Lies at a multiple of 128 on the device too.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

}  // namespace hilbert_ring::cuda
