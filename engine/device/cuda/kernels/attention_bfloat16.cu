#include "engine/device/cuda/kernels/tensor_launch.cuh"

namespace hilbert_ring::cuda {

cudaError_t PrepareBFloat16Kernels() { return TensorKernels<BFloat16>::Prepare(); }

cudaError_t LaunchBFloat16(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
  return TensorKernels<BFloat16>::Launch(kernel, launch, stream);
}

}  // namespace hilbert_ring::cuda
