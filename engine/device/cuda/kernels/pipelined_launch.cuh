// The pipelined kernels of one 16-bit type.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "engine/device/cuda/kernels/attention_pipelined.cuh"
#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::cuda {

template <typename T>
struct PipelinedKernels {
  using Dim64 = Pipelined16<T, 64, 3, 3>;
  using Dim128 = Pipelined16<T, 128, 2, 2>;

  static cudaError_t Prepare() {
    const cudaError_t error = AllowShared<Dim64>();
    return error == cudaSuccess ? AllowShared<Dim128>() : error;
  }

  static cudaError_t Launch(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
    switch (kernel) {
      case NativeKernel::kPipelined64:
        return LaunchBlocks<Dim64>(launch, stream);
      case NativeKernel::kPipelined128:
        return LaunchBlocks<Dim128>(launch, stream);
      default:
        return cudaErrorInvalidValue;
    }
  }

 private:
  template <typename Kernel>
  static cudaError_t AllowShared() {
    cudaError_t error = cudaSuccess;
    for (const auto function : {AttendPipelined<Kernel, false>, AttendPipelined<Kernel, true>}) {
      if (error != cudaSuccess) break;
      error =
          cudaFuncSetAttribute(reinterpret_cast<const void*>(function),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes);
    }
    return error;
  }

  // A block's shared memory leaves no room for a second block on its multiprocessor.
  template <typename Kernel>
  static cudaError_t LaunchBlocks(const AttendLaunch& launch, cudaStream_t stream) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(
        std::min(launch.tiles, static_cast<int64_t>(launch.multiprocessors))));
    config.blockDim = dim3(Kernel::kThreads);
    config.dynamicSmemBytes = Kernel::kSharedBytes;
    config.stream = stream;
    return cudaLaunchKernelEx(
        &config, launch.changes ? AttendPipelined<Kernel, true> : AttendPipelined<Kernel, false>,
        launch.works, launch.count, launch.maps, launch.tiles, launch.notes);
  }
};

}  // namespace hilbert_ring::cuda
