#include "engine/device/cuda/kernels/pipelined_launch.cuh"

namespace hilbert_ring::cuda {

cudaError_t PrepareFloat16Pipelines() { return PipelinedKernels<Float16>::Prepare(); }

cudaError_t LaunchFloat16Pipelines(NativeKernel kernel, const AttendLaunch& launch,
                                   cudaStream_t stream) {
  return PipelinedKernels<Float16>::Launch(kernel, launch, stream);
}

}  // namespace hilbert_ring::cuda
