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
    cudaError_t error = AllowBoth<Short64>();
    if (error == cudaSuccess) error = AllowBoth<Dim64>();
    if (error == cudaSuccess) error = AllowBoth<Dim128>();
    if (error == cudaSuccess) error = AllowBoth<Dim256>();
    return error;
  }

  static cudaError_t Launch(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
    switch (kernel) {
      case NativeKernel::kTensor64Short:
        return LaunchEither<Short64>(launch, stream);
      case NativeKernel::kTensor64:
        return LaunchEither<Dim64>(launch, stream);
      case NativeKernel::kTensor128:
        return LaunchEither<Dim128>(launch, stream);
      case NativeKernel::kTensor256:
        return LaunchEither<Dim256>(launch, stream);
      default:
        return cudaErrorInvalidValue;
    }
  }

 private:
  template <typename Kernel>
  static cudaError_t AllowBoth() {
    const cudaError_t error = AllowShared<Kernel>(Attend16<Kernel, false>);
    return error == cudaSuccess ? AllowShared<Kernel>(Attend16<Kernel, true>) : error;
  }

  template <typename Kernel>
  static cudaError_t LaunchEither(const AttendLaunch& launch, cudaStream_t stream) {
    return LaunchTiles<Kernel>(launch.changes ? Attend16<Kernel, true> : Attend16<Kernel, false>,
                               launch, stream);
  }
};

}  // namespace hilbert_ring::cuda
