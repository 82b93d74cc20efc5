#include "engine/device/cuda/kernels/attention_float32.cuh"
#include "engine/device/cuda/kernels/launch.cuh"

namespace hilbert_ring::cuda {

using Plain64 = Plain32<64>;
using Plain128 = Plain32<128>;
using Plain256 = Plain32<256>;

namespace {

template <typename Kernel>
cudaError_t AllowBoth() {
  const cudaError_t error = AllowShared<Kernel>(Attend32<Kernel, false>);
  return error == cudaSuccess ? AllowShared<Kernel>(Attend32<Kernel, true>) : error;
}

template <typename Kernel>
cudaError_t LaunchEither(const AttendLaunch& launch, cudaStream_t stream) {
  return LaunchTiles<Kernel>(launch.changes ? Attend32<Kernel, true> : Attend32<Kernel, false>,
                             launch, stream);
}

}  // namespace

cudaError_t PrepareFloat32Kernels() {
  cudaError_t error = AllowBoth<Plain64>();
  if (error == cudaSuccess) error = AllowBoth<Plain128>();
  if (error == cudaSuccess) error = AllowBoth<Plain256>();
  return error;
}

cudaError_t LaunchFloat32(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
  switch (kernel) {
    case NativeKernel::kPlain64:
      return LaunchEither<Plain64>(launch, stream);
    case NativeKernel::kPlain128:
      return LaunchEither<Plain128>(launch, stream);
    case NativeKernel::kPlain256:
      return LaunchEither<Plain256>(launch, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace hilbert_ring::cuda
