// Makes the two tensor maps of each work of a launch, by the driver, on the host.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::cuda {

// The driver's function is looked up at run time: programs start without a driver.
class TensorMapEncoder {
 public:
  // cudaErrorSymbolNotFound: the driver is older than CUDA 12.
  cudaError_t Prepare() {
    constexpr unsigned kSinceCuda = 12'000;
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &found, kSinceCuda, cudaEnableDefault, &result);
    if (error != cudaSuccess) return error;
    if (found == nullptr || result != cudaDriverEntryPointSuccess) return cudaErrorSymbolNotFound;
    encode_ = reinterpret_cast<Encode>(found);
    return cudaSuccess;
  }

  // Maps keys and values of a work that HasTensorMaps (kernel_choice.h) accepts. Rows count from
  // the work's first key, batches from the task's first.
  cudaError_t Make(const AttentionWork& work, TensorMap& keys, TensorMap& values) const {
    const cudaError_t error = MakeOne(work, work.k, work.head_dim, keys);
    return error == cudaSuccess ? MakeOne(work, work.v, work.value_dim, values) : error;
  }

 private:
  using Encode = decltype(&cuTensorMapEncodeTiled);

  // Elements beyond the row, the last key or the last batch are copied as zeros.
  cudaError_t MakeOne(const AttentionWork& work, const WorkView& view, int dim,
                      TensorMap& map) const {
    constexpr int64_t kElementBytes = 2;
    constexpr cuuint32_t kRank = 3;
    const int64_t batches =
        (work.task_tile + work.tiles + work.tiles_per_batch - 1) / work.tiles_per_batch;
    const int64_t keys = work.key_end - work.key_begin;
    // An unused stride gets a value that the driver accepts.
    const int64_t row_bytes = (keys > 1 ? view.row : dim) * kElementBytes;
    const int64_t batch_bytes = batches > 1 ? view.batch * kElementBytes : row_bytes;
    const cuuint64_t size[kRank] = {static_cast<cuuint64_t>(dim), static_cast<cuuint64_t>(keys),
                                    static_cast<cuuint64_t>(batches)};
    const cuuint64_t strides[kRank - 1] = {static_cast<cuuint64_t>(row_bytes),
                                           static_cast<cuuint64_t>(batch_bytes)};
    constexpr cuuint32_t kBox[kRank] = {kMapElements, kMapRows, 1};
    constexpr cuuint32_t kEvery[kRank] = {1, 1, 1};
    CUtensorMap made;
    static_assert(sizeof(made) == sizeof(map));
    const CUresult result =
        encode_(&made,
                work.dtype == kWorkBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                kRank, static_cast<uint16_t*>(view.data) + work.key_begin * view.row, size, strides,
                kBox, kEvery, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
    std::memcpy(&map, &made, sizeof(map));
    return cudaSuccess;
  }

  Encode encode_ = nullptr;
};

}  // namespace hilbert_ring::cuda
