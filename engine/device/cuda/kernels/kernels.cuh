// The launches of all kernels. Each starts its kernel on the stream and returns; errors are CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "engine/device/attention.h"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/kernel_choice.h"
#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::cuda {

// All tiles of the works, whose first_tile counts from 0. All pointers are the device's.
struct AttendLaunch {
  const AttentionWork* works = nullptr;
  int count = 0;
  int64_t tiles = 0;
  bool changes = false;  // the works' scores
  LaunchNotes notes;
  // Pipelined kernels alone: each work's map of keys, then of values; the number of blocks.
  const TensorMap* maps = nullptr;
  int multiprocessors = 1;
};

// Allow kernels of the current device the shared memory that they need. Call them once per device.
cudaError_t PrepareFloat32Kernels();
cudaError_t PrepareBFloat16Kernels();
cudaError_t PrepareFloat16Kernels();
cudaError_t PrepareBFloat16Warpgroups();
cudaError_t PrepareFloat16Warpgroups();
cudaError_t PrepareBFloat16Pipelines();
cudaError_t PrepareFloat16Pipelines();

// Without these kernels their functions return cudaErrorNoKernelImageForDevice.
bool HasWarpgroupKernels();
bool HasPipelinedKernels();

cudaError_t LaunchFloat32(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream);
cudaError_t LaunchBFloat16(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream);
cudaError_t LaunchFloat16(NativeKernel kernel, const AttendLaunch& launch, cudaStream_t stream);
cudaError_t LaunchBFloat16Warpgroups(NativeKernel kernel, const AttendLaunch& launch,
                                     cudaStream_t stream);
cudaError_t LaunchFloat16Warpgroups(NativeKernel kernel, const AttendLaunch& launch,
                                    cudaStream_t stream);
cudaError_t LaunchBFloat16Pipelines(NativeKernel kernel, const AttendLaunch& launch,
                                    cudaStream_t stream);
cudaError_t LaunchFloat16Pipelines(NativeKernel kernel, const AttendLaunch& launch,
                                   cudaStream_t stream);

// Makes the maps of a pipelined launch in host memory; they may be copied. PrepareTensorMaps
// returns cudaErrorSymbolNotFound if the driver cannot make them.
cudaError_t PrepareTensorMaps();
cudaError_t MakeTensorMaps(std::span<const AttentionWork> works, TensorMap* maps);

// Computes the tiles that notes.careful_tiles of an attention kernel marks, after it on the same
// stream. Does nothing if notes.careful is 0.
cudaError_t LaunchCareful(NativeKernel kernel, const AttendLaunch& launch, int multiprocessors,
                          cudaStream_t stream);

cudaError_t LaunchMerge(const MergeTask& task, cudaStream_t stream);
cudaError_t LaunchFinalize(const FinalizeTask& task, cudaStream_t stream);
// Multiplies a 16-bit task's results by its out_scale, in place, and rounds them again.
cudaError_t LaunchScaleRows(const AttentionTask& task, cudaStream_t stream);

// Sets *doubt to 1 if an lse of a written 16-bit task is not finite or beyond +-most_lse, or a
// result is not finite. doubt: device memory or pinned host memory.
cudaError_t LaunchDoubt(const AttentionTask& task, float most_lse, unsigned* doubt,
                        cudaStream_t stream);

cudaError_t LaunchPack(const PackTask& task, cudaStream_t stream);

// Copies row i of `from` to row rows[i] of `to`.
cudaError_t LaunchScatterRows(void* to, const void* from, const int64_t* rows, int64_t count,
                              int64_t row_bytes, cudaStream_t stream);
cudaError_t LaunchFillFloats(float* to, int64_t count, float value, cudaStream_t stream);
cudaError_t LaunchFillSequence(int64_t* to, int64_t count, int64_t first, cudaStream_t stream);

}  // namespace hilbert_ring::cuda
