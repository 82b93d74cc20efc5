// Kernels over rows: zero keys, the final rounding, packing, scattering, fills. Any size is one
// launch of a bounded number of blocks.
#include <cuda_runtime.h>

#include <algorithm>

#include "engine/device/cuda/kernels/attention_rows.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/kernels.cuh"

namespace hilbert_ring::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 8192;
constexpr int kWarp = 32;

// A list of (batch, row, head), with a warp for each.
struct Pieces {
  int64_t batch = 0, rows = 0, heads = 0;
  __device__ int64_t count() const { return batch * rows * heads; }
};

struct PieceAt {
  int64_t batch, row, head;
  __device__ PieceAt(const Pieces& pieces, int64_t index) {
    head = index % pieces.heads;
    row = index / pieces.heads % pieces.rows;
    batch = index / pieces.heads / pieces.rows;
  }
  template <typename View>
  __device__ int64_t In(const View& view) const {
    return batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
  }
};

__device__ int64_t ThisThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t AllThreads() { return int64_t{gridDim.x} * blockDim.x; }

__global__ void MergeKernel(MergeTask task) {
  const Pieces pieces{task.batch, task.rows, task.heads};
  const int thread = threadIdx.x % kWarp;
  const double scale = fabs(double{task.scale});
  const bool zeros = task.values.data == nullptr;
  for (int64_t i = ThisThread() / kWarp; i < pieces.count(); i += AllThreads() / kWarp) {
    const PieceAt at(pieces, i);
    const int64_t state = at.In(task.state), part = zeros ? 0 : at.In(task.part);
    const float max = task.state.max[state], sum = task.state.sum[state];
    const float part_max = zeros ? 0.0f : task.part.max[part];
    const double part_sum = zeros ? static_cast<double>(task.count) : task.part.sum[part];
    __syncwarp();  // all have read before one writes
    if (part_sum == 0) continue;
    const float top = fmaxf(max, part_max);
    const double before = sum == 0 ? 0 : sum * exp(scale * (double{max} - top));
    const double now = part_sum * exp(scale * (double{part_max} - top));
    const double all = before + now;
    const float own = static_cast<float>(before / all), other = static_cast<float>(now / all);
    if (thread == 0) {
      task.state.max[state] = top;
      task.state.sum[state] = static_cast<float>(all);
    }
    float* const out = static_cast<float*>(task.out.data) + at.In(task.out);
    const float* const values =
        zeros ? nullptr : static_cast<const float*>(task.values.data) + at.In(task.values);
    for (int64_t x = thread; x < task.value_dim; x += kWarp) {
      const float kept = sum == 0 ? 0.0f : Share(out[x], own);
      out[x] = zeros ? kept : kept + Share(values[x], other);
    }
  }
}

// The end of a row's softmax: its lse, and its values' share of the weights beside a sink.
struct SoftmaxEnd {
  float lse;
  double share;
};

// scale: not negative.
__device__ SoftmaxEnd EndSoftmax(const RowState& state, float scale, const float* sink) {
  if (sink == nullptr) return {LseOf(state, scale), 1};
  if (state.sum == 0) return {*sink, 0};
  const double score = double{scale} * state.max, top = fmax(score, double{*sink});
  const double own = state.sum * exp(score - top), all = own + exp(*sink - top);
  return {static_cast<float>(top + log(all)), own / all};
}

__global__ void FinalizeKernel(FinalizeTask task, int to_dtype) {
  constexpr int kMost = 8;  // values that a thread reads before it writes any
  const Pieces pieces{task.batch, task.rows, task.heads};
  const int thread = threadIdx.x % kWarp;
  const int64_t value_dim = task.to.data == nullptr ? 0 : task.value_dim;
  for (int64_t i = ThisThread() / kWarp; i < pieces.count(); i += AllThreads() / kWarp) {
    const PieceAt at(pieces, i);
    SoftmaxEnd end{0, 1};
    if (task.lse.data != nullptr || task.sinks != nullptr) {
      const int64_t state = at.In(task.state);
      end = EndSoftmax({task.state.max[state], task.state.sum[state]}, fabsf(task.score_scale),
                       task.sinks == nullptr ? nullptr : task.sinks + at.head);
    }
    __syncwarp();  // lse may begin where state.max does
    if (thread == 0 && task.lse.data != nullptr) task.lse.data[at.In(task.lse)] = end.lse;
    const float* const from = static_cast<const float*>(task.from.data) + at.In(task.from);
    const int64_t to = at.In(task.to);
    for (int64_t first = 0; first < value_dim; first += kMost * kWarp) {
      float values[kMost];
#pragma unroll
      for (int x = 0; x < kMost; ++x) {
        const int64_t dim = first + x * kWarp + thread;
        if (dim >= value_dim || end.share == 0) {
          values[x] = 0.0f;
        } else if (task.sinks == nullptr) {
          values[x] = from[dim] * task.scale;
        } else {
          values[x] = static_cast<float>(double{from[dim]} * task.scale * end.share);
        }
      }
      __syncwarp();  // `to` may begin where `from` does
#pragma unroll
      for (int x = 0; x < kMost; ++x) {
        const int64_t dim = first + x * kWarp + thread;
        if (dim >= value_dim) continue;
        if (to_dtype == kWorkFloat32) {
          static_cast<float*>(task.to.data)[to + dim] = values[x];
        } else {
          const uint32_t pair = to_dtype == kWorkBFloat16 ? PackPair<BFloat16>(values[x], 0.0f)
                                                          : PackPair<Float16>(values[x], 0.0f);
          static_cast<uint16_t*>(task.to.data)[to + dim] = static_cast<uint16_t>(pair);
        }
      }
      __syncwarp();
    }
  }
}

template <typename T>
__global__ void ScaleRowsKernel(Pieces pieces, MutableView out, int64_t dim, float scale) {
  const int thread = threadIdx.x % kWarp;
  for (int64_t i = ThisThread() / kWarp; i < pieces.count(); i += AllThreads() / kWarp) {
    T* const row = static_cast<T*>(out.data) + PieceAt(pieces, i).In(out);
    for (int64_t x = thread; x < dim; x += kWarp) {
      const uint32_t pair = PackPair<T>(ToFloat(row[x]) * scale, 0.0f);
      reinterpret_cast<uint16_t*>(row)[x] = static_cast<uint16_t>(pair);
    }
  }
}

template <typename T>
__global__ void DoubtKernel(Pieces pieces, MutableView out, int64_t dim, LseView lse,
                            float most_lse, unsigned* doubt) {
  const int thread = threadIdx.x % kWarp;
  for (int64_t i = ThisThread() / kWarp; i < pieces.count(); i += AllThreads() / kWarp) {
    const PieceAt at(pieces, i);
    const T* const row = static_cast<const T*>(out.data) + at.In(out);
    bool sound = fabsf(lse.data[at.In(lse)]) <= most_lse;
    for (int64_t x = thread; x < dim; x += kWarp) sound = sound && IsFinite(ToFloat(row[x]));
    if (!sound) *doubt = 1;
  }
}

// Sizes, strides and addresses are multiples of Unit.
template <typename Unit>
__global__ void PackKernel(PackTask task) {
  const int64_t per_head = task.head_bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t per_row = task.heads * per_head;
  const auto* const from = static_cast<const char*>(task.from);
  for (int64_t i = ThisThread(); i < task.rows * per_row; i += AllThreads()) {
    const int64_t row = i / per_row, head = i % per_row / per_head, unit = i % per_head;
    static_cast<Unit*>(task.to)[i] =
        reinterpret_cast<const Unit*>(from + row * task.row_stride + head * task.head_stride)[unit];
  }
}

template <typename Unit>
__global__ void ScatterRowsKernel(char* to, const char* from, const int64_t* rows, int64_t count,
                                  int64_t row_bytes) {
  const int64_t per_row = row_bytes / static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = ThisThread(); i < count * per_row; i += AllThreads()) {
    const int64_t row = i / per_row, unit = i % per_row;
    reinterpret_cast<Unit*>(to + rows[row] * row_bytes)[unit] =
        reinterpret_cast<const Unit*>(from)[i];
  }
}

__global__ void FillFloatsKernel(float* to, int64_t count, float value) {
  for (int64_t i = ThisThread(); i < count; i += AllThreads()) to[i] = value;
}

__global__ void FillSequenceKernel(int64_t* to, int64_t count, int64_t first) {
  for (int64_t i = ThisThread(); i < count; i += AllThreads()) to[i] = first + i;
}

cudaLaunchConfig_t ForThreads(int64_t threads, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min(kMaxBlocks, (threads + kThreads - 1) / kThreads)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return config;
}

bool MultiplesOf(int64_t unit, std::initializer_list<int64_t> numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [unit](int64_t number) { return number % unit == 0; });
}

int64_t Address(const void* data) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
}

// Launches with the widest unit that all numbers are multiples of: 16, 4 or 1.
template <typename Launch>
cudaError_t InUnits(std::initializer_list<int64_t> numbers, const Launch& launch) {
  if (MultiplesOf(16, numbers)) return launch(uint4{});
  if (MultiplesOf(4, numbers)) return launch(uint32_t{});
  return launch(uint8_t{});
}

}  // namespace

cudaError_t LaunchMerge(const MergeTask& task, cudaStream_t stream) {
  const int64_t pieces = task.batch * task.rows * task.heads;
  if (pieces == 0 || (task.values.data == nullptr && task.count == 0)) return cudaSuccess;
  const cudaLaunchConfig_t config = ForThreads(pieces * kWarp, stream);
  return cudaLaunchKernelEx(&config, MergeKernel, task);
}

cudaError_t LaunchFinalize(const FinalizeTask& task, cudaStream_t stream) {
  const int64_t pieces = task.batch * task.rows * task.heads;
  if (pieces == 0) return cudaSuccess;
  const cudaLaunchConfig_t config = ForThreads(pieces * kWarp, stream);
  return cudaLaunchKernelEx(&config, FinalizeKernel, task, static_cast<int>(task.to_dtype));
}

cudaError_t LaunchScaleRows(const AttentionTask& task, cudaStream_t stream) {
  const Pieces pieces{task.batch, task.query_rows, task.heads};
  const int64_t count = task.batch * task.query_rows * task.heads;
  if (count == 0 || task.out_scale == 1.0f) return cudaSuccess;
  const cudaLaunchConfig_t config = ForThreads(count * kWarp, stream);
  if (task.out_dtype == DataType::kBFloat16) {
    return cudaLaunchKernelEx(&config, ScaleRowsKernel<BFloat16>, pieces, task.out, task.value_dim,
                              task.out_scale);
  }
  return cudaLaunchKernelEx(&config, ScaleRowsKernel<Float16>, pieces, task.out, task.value_dim,
                            task.out_scale);
}

cudaError_t LaunchDoubt(const AttentionTask& task, float most_lse, unsigned* doubt,
                        cudaStream_t stream) {
  const Pieces pieces{task.batch, task.query_rows, task.heads};
  const int64_t count = task.batch * task.query_rows * task.heads;
  if (count == 0) return cudaSuccess;
  const cudaLaunchConfig_t config = ForThreads(count * kWarp, stream);
  if (task.out_dtype == DataType::kBFloat16) {
    return cudaLaunchKernelEx(&config, DoubtKernel<BFloat16>, pieces, task.out, task.value_dim,
                              task.lse, most_lse, doubt);
  }
  return cudaLaunchKernelEx(&config, DoubtKernel<Float16>, pieces, task.out, task.value_dim,
                            task.lse, most_lse, doubt);
}

cudaError_t LaunchPack(const PackTask& packed, cudaStream_t stream) {
  PackTask task = packed;
  const int64_t bytes = task.rows * task.heads * task.head_bytes;
  if (bytes == 0) return cudaSuccess;
  if (task.head_stride == task.head_bytes) {  // the row is one piece
    task.head_bytes *= task.heads;
    task.heads = 1;
  }
  if (task.heads == 1) task.head_stride = 0;
  return InUnits(
      {Address(task.from), Address(task.to), task.row_stride, task.head_stride, task.head_bytes},
      [&](auto unit) {
        using Unit = decltype(unit);
        const cudaLaunchConfig_t config =
            ForThreads(bytes / static_cast<int64_t>(sizeof(Unit)), stream);
        return cudaLaunchKernelEx(&config, PackKernel<Unit>, task);
      });
}

cudaError_t LaunchScatterRows(void* to, const void* from, const int64_t* rows, int64_t count,
                              int64_t row_bytes, cudaStream_t stream) {
  if (count == 0 || row_bytes == 0) return cudaSuccess;
  return InUnits({Address(to), Address(from), row_bytes}, [&](auto unit) {
    using Unit = decltype(unit);
    const cudaLaunchConfig_t config =
        ForThreads(count * row_bytes / static_cast<int64_t>(sizeof(Unit)), stream);
    return cudaLaunchKernelEx(&config, ScatterRowsKernel<Unit>, static_cast<char*>(to),
                              static_cast<const char*>(from), rows, count, row_bytes);
  });
}

cudaError_t LaunchFillFloats(float* to, int64_t count, float value, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const cudaLaunchConfig_t config = ForThreads(count, stream);
  return cudaLaunchKernelEx(&config, FillFloatsKernel, to, count, value);
}

cudaError_t LaunchFillSequence(int64_t* to, int64_t count, int64_t first, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const cudaLaunchConfig_t config = ForThreads(count, stream);
  return cudaLaunchKernelEx(&config, FillSequenceKernel, to, count, first);
}

}  // namespace hilbert_ring::cuda
