#include "engine/device/cuda/kernels/tensor_launch.cuh"

namespace hilbert_ring::cuda {

cudaError_t PrepareFloat16Kernels() { return TensorKernels<Float16>::Prepare(); }

cudaError_t LaunchFloat16(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream) {
  return TensorKernels<Float16>::Launch(kernel, launch, stream);
}

}  // namespace hilbert_ring::cuda
