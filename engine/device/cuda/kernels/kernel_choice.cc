#include "engine/device/cuda/kernels/kernel_choice.h"

#include <algorithm>

namespace hilbert_ring::cuda {
namespace {

constexpr int64_t kShortLanes = 64;  // of kTensor64Short's tile, half of kTensor64's

// Up to these, a warpgroup kernel's tile would be half empty. The bounds are not measured.
constexpr int64_t kFewLanes64 = 128;
constexpr int64_t kFewLanes128 = 64;
constexpr int64_t kFewKeys = 64;

bool FillsWarpgroups(const AttentionTask& task, int64_t few_lanes) {
  return task.query_rows * task.heads > few_lanes && task.key_rows > kFewKeys;
}

// Limits of cuTensorMapEncodeTiled on sizes and strides.
constexpr int64_t kMapAlignment = 16;                  // bytes
constexpr int64_t kMapStrideBytes = int64_t{1} << 40;  // strides are less
constexpr int64_t kMapSize = (int64_t{1} << 31) - 1;   // coordinates are signed

// Returns whether a tensor map can describe keys or values, rows of `dim` elements of 16 bits.
bool HasTensorMap(const AttentionTask& task, const ConstView& view, int64_t dim) {
  const int64_t row = view.row_stride * 2, batch = view.batch_stride * 2;
  if (reinterpret_cast<uintptr_t>(view.data) % kMapAlignment != 0) return false;
  if (task.key_rows > kMapSize || task.batch > kMapSize) return false;
  if (row % kMapAlignment != 0 || row < dim * 2 || row >= kMapStrideBytes) return false;
  return task.batch == 1 || (batch >= row && batch % row == 0 && batch < kMapStrideBytes);
}

KernelTile MatrixTile(MatrixUnits units, int lanes, int keys, int dim) {
  return {.lanes = lanes, .keys = keys, .head_dim = dim, .value_dim = dim, .units = units};
}

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
      return MatrixTile(MatrixUnits::kWarp, 64, 64, 64);
    case NativeKernel::kTensor64:
      return MatrixTile(MatrixUnits::kWarp, 128, 64, 64);
    case NativeKernel::kTensor128:
      return MatrixTile(MatrixUnits::kWarp, 128, 64, 128);
    case NativeKernel::kTensor256:
      return MatrixTile(MatrixUnits::kWarp, 64, 64, 256);
    case NativeKernel::kWarpgroup64:
      return MatrixTile(MatrixUnits::kWarpgroup, 192, 128, 64);
    case NativeKernel::kWarpgroup128:
      return MatrixTile(MatrixUnits::kWarpgroup, 128, 128, 128);
    case NativeKernel::kPipelined64:
      return MatrixTile(MatrixUnits::kPipelined, 192, 128, 64);
    case NativeKernel::kPipelined128:
      return MatrixTile(MatrixUnits::kPipelined, 128, 128, 128);
  }
  return {};
}

bool HasTensorMaps(const AttentionTask& task) {
  if (task.mask == Mask::kPositions) return false;
  return HasTensorMap(task, task.k, task.head_dim) && HasTensorMap(task, task.v, task.value_dim);
}

NativeKernel ChooseNative(const AttentionTask& task, MatrixUnits units) {
  if (task.dtype == DataType::kFloat32 || units == MatrixUnits::kNone) {
    if (task.value_dim <= 64) return NativeKernel::kPlain64;
    return task.value_dim <= 128 ? NativeKernel::kPlain128 : NativeKernel::kPlain256;
  }
  const int64_t dim = std::max(task.head_dim, task.value_dim);
  if (dim > 128) return NativeKernel::kTensor256;
  const bool fills = FillsWarpgroups(task, dim > 64 ? kFewLanes128 : kFewLanes64);
  const bool pipelined = fills && units == MatrixUnits::kPipelined && HasTensorMaps(task) &&
                         task.change.slopes == nullptr;
  const bool warpgroups = fills && units != MatrixUnits::kWarp && !task.change.changes();
  if (dim > 64) {
    if (pipelined) return NativeKernel::kPipelined128;
    return warpgroups ? NativeKernel::kWarpgroup128 : NativeKernel::kTensor128;
  }
  if (pipelined) return NativeKernel::kPipelined64;
  if (warpgroups) return NativeKernel::kWarpgroup64;
  return task.query_rows * task.heads <= kShortLanes ? NativeKernel::kTensor64Short
                                                     : NativeKernel::kTensor64;
}

}  // namespace hilbert_ring::cuda
