// The emulated driver: makes tensor maps, and refuses the calls that the real driver refuses.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "tests/unit/device/cuda_emulation/tensor_map_bytes.h"

namespace {

constexpr cuuint32_t kRank = 3;  // the only rank that kernels use
constexpr uint64_t kAlignment = 16;
constexpr uint64_t kMostSize = uint64_t{1} << 32;
constexpr uint64_t kMostStride = uint64_t{1} << 40;
constexpr cuuint32_t kMostBox = 256;
constexpr cuuint32_t kPermutedBytes = 128;
constexpr cuuint32_t kElementBytes = 2;

bool IsValid(const void* data, const cuuint64_t* sizes, const cuuint64_t* strides,
             const cuuint32_t* box, bool permuted) {
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) return false;
  for (cuuint32_t i = 0; i < kRank; ++i) {
    if (sizes[i] == 0 || sizes[i] > kMostSize || box[i] == 0 || box[i] > kMostBox) return false;
  }
  for (cuuint32_t i = 0; i + 1 < kRank; ++i) {
    if (strides[i] % kAlignment != 0 || strides[i] >= kMostStride) return false;
  }
  if (strides[0] < sizes[0] * kElementBytes || strides[1] % strides[0] != 0) return false;
  const cuuint32_t row_bytes = box[0] * kElementBytes;
  return row_bytes % kAlignment == 0 && (!permuted || row_bytes <= kPermutedBytes);
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* data, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const bool permuted = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  if (rank != kRank || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
      (type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) ||
      reinterpret_cast<uintptr_t>(map) % alignof(CUtensorMap) != 0 ||
      !IsValid(data, sizes, strides, box, permuted)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  hilbert_ring::emulation::TensorMapBytes bytes{.data = static_cast<const std::byte*>(data),
                                                .element_bytes = kElementBytes,
                                                .permuted = permuted ? 1 : 0};
  for (cuuint32_t i = 0; i < kRank; ++i) {
    if (steps[i] != 1) return CUDA_ERROR_INVALID_VALUE;
    bytes.size[i] = static_cast<int64_t>(sizes[i]);
    bytes.box[i] = static_cast<int64_t>(box[i]);
    if (i + 1 < kRank) bytes.stride[i] = static_cast<int64_t>(strides[i]);
  }
  std::memset(static_cast<void*>(map), 0, sizeof(*map));
  std::memcpy(static_cast<void*>(map), &bytes, sizeof(bytes));
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *found = known ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
