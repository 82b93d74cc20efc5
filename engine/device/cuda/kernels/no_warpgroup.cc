// Stubs of a build without compute capability 9.0.
#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::cuda {

bool HasWarpgroupKernels() { return false; }

cudaError_t PrepareBFloat16Warpgroups() { return cudaErrorNoKernelImageForDevice; }
cudaError_t PrepareFloat16Warpgroups() { return cudaErrorNoKernelImageForDevice; }

cudaError_t LaunchBFloat16Warpgroups(NativeKernel, const AttendLaunch&, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t LaunchFloat16Warpgroups(NativeKernel, const AttendLaunch&, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}

}  // namespace hilbert_ring::cuda
