// Starts attention kernels, in the files that instantiate them.
#pragma once

#include <cuda_runtime.h>

#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::cuda {

using AttendFunction = void (*)(const AttentionWork*, int, LaunchNotes);

template <typename Kernel>
cudaError_t AllowShared(AttendFunction function) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(function),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes);
}

template <typename Kernel>
cudaError_t LaunchTiles(AttendFunction function, const AttendLaunch& launch, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.tiles));
  config.blockDim = dim3(Kernel::kThreads);
  config.dynamicSmemBytes = Kernel::kSharedBytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, function, launch.works, launch.count, launch.notes);
}

}  // namespace hilbert_ring::cuda
