// The content of the emulated driver's tensor maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::emulation {

// A tensor of three dims, the first of which is dense.
struct TensorMapBytes {
  const std::byte* data;
  int64_t size[3];    // elements
  int64_t stride[2];  // bytes
  int64_t box[3];     // elements
  int64_t element_bytes;
  int64_t permuted;  // pieces of 16 bytes are permuted within 128
};
static_assert(sizeof(TensorMapBytes) <= sizeof(cuda::TensorMap));

inline TensorMapBytes BytesOf(const cuda::TensorMap& map) {
  TensorMapBytes bytes;
  std::memcpy(&bytes, &map, sizeof(bytes));
  return bytes;
}

}  // namespace hilbert_ring::emulation
