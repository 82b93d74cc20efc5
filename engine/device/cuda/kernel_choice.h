// Which of our kernels computes a task, and what its tiles are. Pure.
#pragma once

#include <cstdint>

#include "engine/device/attention.h"

namespace hilbert_ring::cuda {

enum class NativeKernel {
  kPlain64,  // float32 arithmetic, value_dim up to 64
  kPlain128,
  kPlain256,
  kTensor64Short,  // tensor cores, dims up to 64, few lanes
  kTensor64,
  kTensor128,
  kTensor256,
};
inline constexpr int kNativeKernels = 7;

struct KernelTile {
  int lanes = 0;
  int keys = 0;
  int head_dim = 0;  // that it computes, whatever the task's is; 0: the task's
  int value_dim = 0;
  bool tensor = false;
};
KernelTile TileOf(NativeKernel kernel);

// tensor_cores: whether the GPU multiplies 16-bit matrices as our kernels need it (from compute
// capability 8.0).
NativeKernel ChooseNative(const AttentionTask& task, bool tensor_cores);

}  // namespace hilbert_ring::cuda
