#include "engine/device/cuda/kernels/warpgroup_launch.cuh"

namespace hilbert_ring::cuda {

cudaError_t PrepareFloat16Warpgroups() { return WarpgroupKernels<Float16>::Prepare(); }

cudaError_t LaunchFloat16Warpgroups(NativeKernel kernel, const AttendLaunch& launch,
                                    cudaStream_t stream) {
  return WarpgroupKernels<Float16>::Launch(kernel, launch, stream);
}

}  // namespace hilbert_ring::cuda
