// Stubs of a build without compute capability 9.0, or by a CUDA before 12.5.
#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::cuda {

bool HasPipelinedKernels() { return false; }

cudaError_t PrepareBFloat16Pipelines() { return cudaErrorNoKernelImageForDevice; }
cudaError_t PrepareFloat16Pipelines() { return cudaErrorNoKernelImageForDevice; }

cudaError_t LaunchBFloat16Pipelines(NativeKernel, const AttendLaunch&, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t LaunchFloat16Pipelines(NativeKernel, const AttendLaunch&, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}

cudaError_t PrepareTensorMaps() { return cudaErrorNoKernelImageForDevice; }
cudaError_t MakeTensorMaps(std::span<const AttentionWork>, TensorMap*) {
  return cudaErrorNoKernelImageForDevice;
}

}  // namespace hilbert_ring::cuda
