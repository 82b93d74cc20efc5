#include "engine/device/cuda/kernels/attention_float32.cuh"
#include "engine/device/cuda/kernels/launch.cuh"

namespace hilbert_ring::cuda {

using Plain64 = Plain32<64>;
using Plain128 = Plain32<128>;
using Plain256 = Plain32<256>;

cudaError_t PrepareFloat32Kernels() {
  cudaError_t error = AllowShared<Plain64>(Attend32<Plain64>);
  if (error == cudaSuccess) error = AllowShared<Plain128>(Attend32<Plain128>);
  if (error == cudaSuccess) error = AllowShared<Plain256>(Attend32<Plain256>);
  return error;
}

cudaError_t LaunchFloat32(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
  switch (kernel) {
    case NativeKernel::kPlain64:
      return LaunchTiles<Plain64>(Attend32<Plain64>, launch, stream);
    case NativeKernel::kPlain128:
      return LaunchTiles<Plain128>(Attend32<Plain128>, launch, stream);
    case NativeKernel::kPlain256:
      return LaunchTiles<Plain256>(Attend32<Plain256>, launch, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace hilbert_ring::cuda
