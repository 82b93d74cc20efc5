#include "engine/device/cuda/kernel_choice.h"

#include <algorithm>

namespace hilbert_ring::cuda {
namespace {

constexpr int64_t kShortLanes = 64;  // of kTensor64Short's tile, half of kTensor64's

}  // namespace

KernelTile TileOf(NativeKernel kernel) {
  switch (kernel) {
    case NativeKernel::kPlain64:
      return {.lanes = 64, .keys = 64, .value_dim = 64};
    case NativeKernel::kPlain128:
      return {.lanes = 64, .keys = 64, .value_dim = 128};
    case NativeKernel::kPlain256:
      return {.lanes = 64, .keys = 64, .value_dim = 256};
    case NativeKernel::kTensor64Short:
      return {.lanes = 64, .keys = 64, .head_dim = 64, .value_dim = 64, .tensor = true};
    case NativeKernel::kTensor64:
      return {.lanes = 128, .keys = 64, .head_dim = 64, .value_dim = 64, .tensor = true};
    case NativeKernel::kTensor128:
      return {.lanes = 128, .keys = 64, .head_dim = 128, .value_dim = 128, .tensor = true};
    case NativeKernel::kTensor256:
      return {.lanes = 64, .keys = 64, .head_dim = 256, .value_dim = 256, .tensor = true};
  }
  return {};
}

NativeKernel ChooseNative(const AttentionTask& task, bool tensor_cores) {
  if (task.dtype == DataType::kFloat32 || !tensor_cores) {
    if (task.value_dim <= 64) return NativeKernel::kPlain64;
    return task.value_dim <= 128 ? NativeKernel::kPlain128 : NativeKernel::kPlain256;
  }
  const int64_t dim = std::max(task.head_dim, task.value_dim);
  if (dim > 128) return NativeKernel::kTensor256;
  if (dim > 64) return NativeKernel::kTensor128;
  return task.query_rows * task.heads <= kShortLanes ? NativeKernel::kTensor64Short
                                                     : NativeKernel::kTensor64;
}

}  // namespace hilbert_ring::cuda
