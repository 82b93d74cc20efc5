// The tensor-core kernels of one 16-bit type.
#pragma once

#include "engine/device/cuda/kernels/attention_16bit.cuh"
#include "engine/device/cuda/kernels/launch.cuh"

namespace hilbert_ring::cuda {

template <typename T>
struct TensorKernels {
  using Short64 = Tensor16<T, 64, 1>;
  using Dim64 = Tensor16<T, 64, 2>;
  using Dim128 = Tensor16<T, 128, 2>;
  using Dim256 = Tensor16<T, 256, 1>;

  static cudaError_t Prepare() {
    cudaError_t error = AllowShared<Short64>(Attend16<Short64>);
    if (error == cudaSuccess) error = AllowShared<Dim64>(Attend16<Dim64>);
    if (error == cudaSuccess) error = AllowShared<Dim128>(Attend16<Dim128>);
    if (error == cudaSuccess) error = AllowShared<Dim256>(Attend16<Dim256>);
    return error;
  }

  static cudaError_t Launch(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
    switch (kernel) {
      case NativeKernel::kTensor64Short:
        return LaunchTiles<Short64>(Attend16<Short64>, launch, stream);
      case NativeKernel::kTensor64:
        return LaunchTiles<Dim64>(Attend16<Dim64>, launch, stream);
      case NativeKernel::kTensor128:
        return LaunchTiles<Dim128>(Attend16<Dim128>, launch, stream);
      case NativeKernel::kTensor256:
        return LaunchTiles<Dim256>(Attend16<Dim256>, launch, stream);
      default:
        return cudaErrorInvalidValue;
    }
  }
};

}  // namespace hilbert_ring::cuda
