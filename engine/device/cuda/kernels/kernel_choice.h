// The native kernel of a task, and the kernel's tiles. Pure.
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
  kWarpgroup64,  // Hopper's products, dims up to 64
  kWarpgroup128,
  kPipelined64,  // Hopper's products, fed by a producer
  kPipelined128,
};

enum class MatrixUnits {
  kNone,
  kWarp,       // products of a warp, from compute capability 8.0
  kWarpgroup,  // also asynchronous products of four warps, compute capability 9.0
  kPipelined,  // also copies by tensor maps
};

struct KernelTile {
  int lanes = 0;
  int keys = 0;
  int head_dim = 0;  // of its products; 0: the task's
  int value_dim = 0;
  MatrixUnits units = MatrixUnits::kNone;  // that it needs
};
KernelTile TileOf(NativeKernel kernel);

// Returns whether tensor maps can describe the keys and values of a 16-bit task without a mask by
// positions. Other tasks use the kernels without a producer.
bool HasTensorMaps(const AttentionTask& task);

NativeKernel ChooseNative(const AttentionTask& task, MatrixUnits units);

}  // namespace hilbert_ring::cuda
