#include "engine/device/cuda/kernels/pipelined_launch.cuh"

namespace hilbert_ring::cuda {

bool HasPipelinedKernels() { return true; }

cudaError_t PrepareBFloat16Pipelines() { return PipelinedKernels<BFloat16>::Prepare(); }

cudaError_t LaunchBFloat16Pipelines(NativeKernel kernel, const AttendLaunch& launch,
                                    cudaStream_t stream) {
  return PipelinedKernels<BFloat16>::Launch(kernel, launch, stream);
}

}  // namespace hilbert_ring::cuda
