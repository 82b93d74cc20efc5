#include "engine/device/cuda/kernels/warpgroup_launch.cuh"

namespace hilbert_ring::cuda {

bool HasWarpgroupKernels() { return true; }

cudaError_t PrepareBFloat16Warpgroups() { return WarpgroupKernels<BFloat16>::Prepare(); }

cudaError_t LaunchBFloat16Warpgroups(NativeKernel kernel, const AttendLaunch& launch,
                                     cudaStream_t stream) {
  return WarpgroupKernels<BFloat16>::Launch(kernel, launch, stream);
}

}  // namespace hilbert_ring::cuda
