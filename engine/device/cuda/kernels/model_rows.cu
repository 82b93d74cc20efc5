// Kernels over rows of models: norms, activations, residuals, conversions, positions, sums. A block
// of threads takes a row, thread t its elements t, t + threads, ...
#include <cuda_runtime.h>

#include <algorithm>

#include "engine/device/cuda/kernels/attention_rows.cuh"
#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/model_rows.cuh"

namespace hilbert_ring::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 256;
constexpr int64_t kMostBlocks = 8192;
constexpr int kScratchBytes = kMostThreads * sizeof(double);  // of a block's sums
// Elements of a row that a block keeps in shared memory, of which every GPU gives 48 KiB by
// default. Longer rows are computed again in each pass.
constexpr int64_t kMostKept = ((48 << 10) - kScratchBytes) / 4;

__device__ float LoadAs(int dtype, const void* from, int64_t index) {
  if (dtype == static_cast<int>(DataType::kFloat32)) return static_cast<const float*>(from)[index];
  if (dtype == static_cast<int>(DataType::kBFloat16)) {
    return ToFloat(static_cast<const BFloat16*>(from)[index]);
  }
  return ToFloat(static_cast<const Float16*>(from)[index]);
}

__device__ void StoreAs(int dtype, void* to, int64_t index, float value) {
  if (dtype == static_cast<int>(DataType::kFloat32)) {
    static_cast<float*>(to)[index] = value;
    return;
  }
  const uint32_t pair = dtype == static_cast<int>(DataType::kBFloat16)
                            ? PackPair<BFloat16>(value, 0.0f)
                            : PackPair<Float16>(value, 0.0f);
  static_cast<uint16_t*>(to)[index] = static_cast<uint16_t>(pair);
}

// The sum over the block's threads, with the same bits in all of them.
__device__ float SumOfBlock(float value) {
  float* const of_warps = reinterpret_cast<float*>(SharedMemory());
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += FromPartner(value, mask);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) sum += of_warps[warp];
  __syncthreads();  // all have read before the next sum is written
  return sum;
}

// The sum in float64, on rare rows.
__device__ double SumOfBlock(double value) {
  double* const of_threads = reinterpret_cast<double*>(SharedMemory());
  of_threads[threadIdx.x] = value;
  __syncthreads();
  double sum = 0;
  for (unsigned thread = 0; thread < blockDim.x; ++thread) sum += of_threads[thread];
  __syncthreads();
  return sum;
}

__device__ float Gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

template <bool kKept>
struct Row {
  const RowsTask& task;
  int64_t row;

  __device__ float* kept() const {
    return reinterpret_cast<float*>(SharedMemory() + kScratchBytes);
  }
  __device__ float Before(int64_t x) const {
    float value = LoadAs(static_cast<int>(task.from_dtype), task.from, row * task.from_stride + x);
    if (task.bias != nullptr) value += task.bias[x];
    return task.activation == Activation::kGelu ? Gelu(value) : value;
  }
  __device__ float First(int64_t x) const {
    float value = Before(x);
    if (task.residual != nullptr) {
      float& residual = task.residual[row * task.dim + x];
      value += residual;
      residual = value;
    }
    if constexpr (kKept) kept()[x] = value;
    return value;
  }
  __device__ float Again(int64_t x) const {
    if constexpr (kKept) return kept()[x];
    return task.residual != nullptr ? task.residual[row * task.dim + x] : Before(x);
  }
};

// The norm of rows whose squares overflow float32.
template <bool kKept>
__device__ void NormInFloat64(const Row<kKept>& row) {
  const RowsTask& task = row.task;
  const auto count = static_cast<double>(task.dim);
  double mean = 0, variance = 0;
  for (int64_t x = threadIdx.x; x < task.dim; x += blockDim.x) mean += row.Again(x) / count;
  mean = SumOfBlock(mean);
  for (int64_t x = threadIdx.x; x < task.dim; x += blockDim.x) {
    const double off = row.Again(x) - mean;
    variance += off * off / count;
  }
  variance = SumOfBlock(variance);
  const double scale = 1.0 / sqrt(variance + static_cast<double>(task.norm.epsilon));
  for (int64_t x = threadIdx.x; x < task.dim; x += blockDim.x) {
    const double value = (row.Again(x) - mean) * scale * task.norm.weight[x] + task.norm.bias[x];
    StoreAs(static_cast<int>(task.to_dtype), task.to, row.row * task.dim + x,
            static_cast<float>(value));
  }
}

template <bool kKept>
__device__ void Norm(const Row<kKept>& row, float sum) {
  const RowsTask& task = row.task;
  const auto count = static_cast<float>(task.dim);
  const float mean = SumOfBlock(sum) / count;
  float squares = 0;
  for (int64_t x = threadIdx.x; x < task.dim; x += blockDim.x) {
    const float off = row.Again(x) - mean;
    squares += off * off;
  }
  const float variance = SumOfBlock(squares) / count;
  if (!IsFinite(variance)) return NormInFloat64(row);
  const float scale = 1.0f / sqrtf(variance + task.norm.epsilon);
  for (int64_t x = threadIdx.x; x < task.dim; x += blockDim.x) {
    const float value = (row.Again(x) - mean) * scale * task.norm.weight[x] + task.norm.bias[x];
    StoreAs(static_cast<int>(task.to_dtype), task.to, row.row * task.dim + x, value);
  }
}

template <bool kKept>
__global__ void RowsKernel(RowsTask task) {
  for (int64_t i = blockIdx.x; i < task.rows; i += gridDim.x) {
    const Row<kKept> row{task, i};
    const bool stores = task.to != nullptr && task.norm.weight == nullptr;
    float sum = 0;
    for (int64_t x = threadIdx.x; x < task.dim; x += blockDim.x) {
      const float value = row.First(x);
      sum += value;
      if (stores) StoreAs(static_cast<int>(task.to_dtype), task.to, i * task.dim + x, value);
    }
    if (task.to != nullptr && task.norm.weight != nullptr) Norm(row, sum);
  }
}

// In float64: float32 keeps fewer than four decimal places of an angle of a thousand radians. The
// row's first half encodes y; the first half of each half is sines.
__device__ float PositionOf(const PlaceTask& task, int64_t row, int64_t x) {
  const int64_t half = task.dim / 2, count = task.dim / 4;
  const double cell = floor(task.coords[2 * row + (x < half ? 1 : 0)] / task.tile_size);
  const int64_t of_half = x % half;
  const double angle = cell * task.frequencies[of_half % count];
  return static_cast<float>(of_half < count ? sin(angle) : cos(angle));
}

__global__ void PlaceKernel(PlaceTask task) {
  for (int64_t i = blockIdx.x; i < task.rows; i += gridDim.x) {
    float* const to = task.to + task.places[i] * task.dim;
    for (int64_t x = threadIdx.x; x < task.dim; x += blockDim.x) {
      float value = LoadAs(static_cast<int>(task.from_dtype), task.from, i * task.dim + x);
      if (task.bias != nullptr) value += task.bias[x];
      if (task.coords != nullptr) value += PositionOf(task, i, x);
      to[x] = value;
    }
  }
}

// A warp's threads take 32 columns. Each warp takes every eighth row, and the first adds them up.
__global__ void SumKernel(SumTask task) {
  const int warps = static_cast<int>(blockDim.x) / kWarp, warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t x = int64_t{blockIdx.x} * kWarp + lane;
  double* const of_warps = reinterpret_cast<double*>(SharedMemory());  // [warps, 32]
  double sum = 0;
  if (x < task.dim) {
    for (int64_t row = warp; row < task.rows; row += warps) sum += task.from[row * task.dim + x];
  }
  of_warps[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || x >= task.dim) return;
  for (int other = 1; other < warps; ++other) sum += of_warps[other * kWarp + lane];
  task.to[x] += sum;
}

// A block for each row, with a thread for two elements.
cudaLaunchConfig_t ForRows(int64_t rows, int64_t dim, cudaStream_t stream) {
  const int64_t warps = std::clamp<int64_t>(dim / (2 * kWarp), 1, kMostThreads / kWarp);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(kMostBlocks, rows)));
  config.blockDim = dim3(static_cast<unsigned>(warps * kWarp));
  config.stream = stream;
  return config;
}

}  // namespace

cudaError_t LaunchRows(const RowsTask& task, cudaStream_t stream) {
  if (task.rows == 0 || task.dim == 0) return cudaSuccess;
  cudaLaunchConfig_t config = ForRows(task.rows, task.dim, stream);
  config.dynamicSmemBytes = kScratchBytes;
  if (task.dim > kMostKept) return cudaLaunchKernelEx(&config, RowsKernel<false>, task);
  config.dynamicSmemBytes += static_cast<size_t>(task.dim) * sizeof(float);
  return cudaLaunchKernelEx(&config, RowsKernel<true>, task);
}

cudaError_t LaunchPlace(const PlaceTask& task, cudaStream_t stream) {
  if (task.rows == 0 || task.dim == 0) return cudaSuccess;
  const cudaLaunchConfig_t config = ForRows(task.rows, task.dim, stream);
  return cudaLaunchKernelEx(&config, PlaceKernel, task);
}

cudaError_t LaunchSum(const SumTask& task, cudaStream_t stream) {
  if (task.rows == 0 || task.dim == 0) return cudaSuccess;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((task.dim + kWarp - 1) / kWarp));
  config.blockDim = dim3(kMostThreads);
  config.dynamicSmemBytes = kMostThreads * sizeof(double);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, SumKernel, task);
}

}  // namespace hilbert_ring::cuda
