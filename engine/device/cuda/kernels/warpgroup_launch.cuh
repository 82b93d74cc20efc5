// The warpgroup kernels of one 16-bit type.
#pragma once

#include "engine/device/cuda/kernels/attention_warpgroup.cuh"
#include "engine/device/cuda/kernels/launch.cuh"

namespace hilbert_ring::cuda {

template <typename T>
struct WarpgroupKernels {
  using Dim64 = Warpgroup16<T, 64, 3>;
  using Dim128 = Warpgroup16<T, 128, 2>;

  static cudaError_t Prepare() {
    cudaError_t error = AllowShared<Dim64>(AttendByWarpgroups<Dim64>);
    if (error == cudaSuccess) error = AllowShared<Dim128>(AttendByWarpgroups<Dim128>);
    return error;
  }

  static cudaError_t Launch(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
    switch (kernel) {
      case NativeKernel::kWarpgroup64:
        return LaunchTiles<Dim64>(AttendByWarpgroups<Dim64>, launch, stream);
      case NativeKernel::kWarpgroup128:
        return LaunchTiles<Dim128>(AttendByWarpgroups<Dim128>, launch, stream);
      default:
        return cudaErrorInvalidValue;
    }
  }
};

}  // namespace hilbert_ring::cuda
