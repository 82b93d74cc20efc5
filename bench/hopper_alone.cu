// The Hopper kernels alone. Needs nvcc and a GPU of compute capability 9.0, but no library and no
// CMake. From the repository's root:
//
//   nvcc -std=c++20 -O3 -I. -gencode=arch=compute_90a,code=sm_90a bench/hopper_alone.cu
//   ./a.out [--rows=N] [--dilation=N] [--quick]
//
// Prints a Markdown table of each kernel, native-sm90-pipelined last: attention in bfloat16 over N
// rows (32768) of 8 heads, every dilation-th of a sequence (1), at head dims 64 and 128, dense and
// causal. Columns are TFLOP/s, median of 9 launches after 200 ms, and the error of a few rows
// against float64. Exits with 1 after a wrong result or an error of CUDA, with 2 for wrong options,
// with 3 without such a GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numbers>
#include <vector>

#include "engine/device/cuda/kernels/attention_pipelined.cuh"
#include "engine/device/cuda/kernels/attention_warpgroup.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/tensor_map_encoder.h"

namespace {

using namespace hilbert_ring;
using namespace hilbert_ring::cuda;

constexpr int kHeads = 8;
constexpr int kCheckedRows = 4;
constexpr double kMostError = 1e-2;  // root mean square, relative to that of the values

// The instances of warpgroup_launch.cuh and pipelined_launch.cuh, which need more than nvcc.
using Dim64 = Warpgroup16<BFloat16, 64, 3>;
using Dim128 = Warpgroup16<BFloat16, 128, 2>;
using Pipelined64 = Pipelined16<BFloat16, 64, 3, 3>;
using Pipelined128 = Pipelined16<BFloat16, 128, 2, 2>;
// An eighth of the exponentials as polynomials. The service does not use it: it was 5 % slower on
// an H200 when scores took another instruction.
using Polynomial64 = Pipelined16<BFloat16, 64, 3, 3, 8>;

template <typename Kernel>
inline constexpr bool kPipelined = requires {
  Kernel::kStages;
};

template <typename Kernel>
constexpr const char* NameOf() {
  if constexpr (kPipelined<Kernel>) {
    return Kernel::kPolynomialEvery > 0 ? "native-sm90-pipelined, polynomials"
                                        : "native-sm90-pipelined";
  } else {
    return "native-sm90";
  }
}

template <typename Kernel>
constexpr auto FunctionOf() {
  if constexpr (kPipelined<Kernel>) {
    return AttendPipelined<Kernel, false>;
  } else {
    return AttendByWarpgroups<Kernel>;
  }
}

struct Options {
  int64_t rows = 32'768;
  int64_t dilation = 1;
  double warm_seconds = 0.2;
  int rounds = 9;
};

void OrFail(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "hopper_alone: %s: %s, %s\n", what, cudaGetErrorName(error),
               cudaGetErrorString(error));
  std::exit(1);
}

uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double FromBFloat16(uint16_t stored) {
  const uint32_t bits = uint32_t{stored} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// About normal: sums of twelve uniform numbers.
std::vector<uint16_t> RandomNumbers(int64_t count, uint64_t seed) {
  std::vector<uint16_t> numbers(count);
  for (uint16_t& number : numbers) {
    float sum = -6;
    for (int i = 0; i < 12; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<float>(seed >> 40) * 0x1p-24f;
    }
    number = ToBFloat16(sum);
  }
  return numbers;
}

// Device memory, freed at the end of the program.
template <typename T>
T* OnDevice(int64_t count) {
  void* data = nullptr;
  OrFail(cudaMalloc(&data, static_cast<size_t>(count) * sizeof(T)), "allocating memory");
  return static_cast<T*>(data);
}

template <typename Kernel>
class Layer {
 public:
  Layer(const Options& options, bool causal, cudaStream_t stream)
      : options_(options), causal_(causal), stream_(stream) {
    const int64_t elements = options.rows * row_stride();
    for (int t = 0; t < 4; ++t) {
      tensors_[t] = OnDevice<uint16_t>(elements);
      if (t == 3) {
        OrFail(cudaMemsetAsync(tensors_[t], 0xff, elements * sizeof(uint16_t), stream), "clearing");
        break;
      }
      numbers_[t] = RandomNumbers(elements, t + 1);
      OrFail(cudaMemcpyAsync(tensors_[t], numbers_[t].data(), elements * sizeof(uint16_t),
                             cudaMemcpyHostToDevice, stream),
             "copying");
      OrFail(cudaStreamSynchronize(stream), "copying");
    }
    Describe();
    OrFail(cudaFuncSetAttribute(reinterpret_cast<const void*>(FunctionOf<Kernel>()),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes),
           "asking for shared memory");
  }
  ~Layer() {
    for (uint16_t* tensor : tensors_) cudaFree(tensor);
    cudaFree(works_);
    cudaFree(maps_);
    cudaFree(notes_.scores);
    cudaFree(notes_.careful);
    cudaFree(notes_.careful_tiles);
    cudaFree(notes_.taken);
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  double Rate() {  // TFLOP/s, without scores above the diagonal
    for (double warm = SecondsOfLaunch(); warm < options_.warm_seconds;) warm += SecondsOfLaunch();
    std::vector<double> seconds(options_.rounds);
    for (double& round : seconds) round = SecondsOfLaunch();
    std::nth_element(seconds.begin(), seconds.begin() + options_.rounds / 2, seconds.end());
    const double rows = static_cast<double>(options_.rows);
    const double scores = causal_ ? rows * (rows + 1) / 2 : rows * rows;
    return 4e-12 * Kernel::kDim * kHeads * scores / seconds[options_.rounds / 2];
  }

  double Error() const {
    double wrong = 0, right = 0;
    for (int64_t n = 0; n < kCheckedRows; ++n) {
      const int64_t row = (2 * n + 1) * options_.rows / (2 * kCheckedRows);
      const int64_t head = (2 * n + 1) % kHeads;
      const int64_t keys = causal_ ? row + 1 : options_.rows;
      std::vector<double> weights(keys), expected(Kernel::kDim);
      double most = -INFINITY, sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        for (int64_t x = 0; x < Kernel::kDim; ++x) {
          weights[j] += At(0, row, head, x) * At(1, j, head, x);
        }
        weights[j] /= std::sqrt(Kernel::kDim);
        most = std::max(most, weights[j]);
      }
      for (int64_t j = 0; j < keys; ++j) {
        weights[j] = std::exp(weights[j] - most);
        sum += weights[j];
        for (int64_t x = 0; x < Kernel::kDim; ++x) expected[x] += weights[j] * At(2, j, head, x);
      }
      std::vector<uint16_t> found(Kernel::kDim);
      OrFail(cudaMemcpyAsync(found.data(), tensors_[3] + row * row_stride() + head * Kernel::kDim,
                             found.size() * sizeof(uint16_t), cudaMemcpyDeviceToHost, stream_),
             "copying results");
      OrFail(cudaStreamSynchronize(stream_), "copying results");
      for (int64_t x = 0; x < Kernel::kDim; ++x) {
        const double error = FromBFloat16(found[x]) - expected[x] / sum;
        wrong += error * error;
        right += expected[x] / sum * expected[x] / sum;
      }
    }
    return std::sqrt(wrong / right);
  }

 private:
  int64_t row_stride() const { return options_.dilation * kHeads * Kernel::kDim; }

  double At(int tensor, int64_t row, int64_t head, int64_t x) const {
    return FromBFloat16(numbers_[tensor][row * row_stride() + head * Kernel::kDim + x]);
  }

  void Describe() {
    const auto scale = static_cast<float>(1 / std::sqrt(Kernel::kDim));
    std::vector<AttentionWork> works(kHeads);
    for (int64_t head = 0; head < kHeads; ++head) {
      AttentionWork& work = works[head];
      WorkView* const views[] = {&work.q, &work.k, &work.v, &work.out};
      for (int t = 0; t < 4; ++t) {
        *views[t] = {tensors_[t] + head * Kernel::kDim, 0, row_stride(), Kernel::kDim};
      }
      work.lanes = options_.rows;
      work.key_end = options_.rows;
      work.tiles = work.tiles_per_batch = (options_.rows + Kernel::kLanes - 1) / Kernel::kLanes;
      work.first_tile = head * work.tiles;
      work.scale = scale;
      work.score_scale = scale * static_cast<float>(std::numbers::log2e);
      work.head_dim = work.value_dim = Kernel::kDim;
      work.dtype = work.out_dtype = kWorkBFloat16;
      work.mask = causal_ ? kWorkMaskDiagonal : kWorkMaskNone;
      work.lower_shift = -options_.rows;
      work.queries_aligned = work.keys_aligned = work.out_aligned = 1;
      tiles_ += work.tiles;
    }
    works_ = OnDevice<AttentionWork>(kHeads);
    OrFail(cudaMemcpyAsync(works_, works.data(), works.size() * sizeof(AttentionWork),
                           cudaMemcpyHostToDevice, stream_),
           "copying works");
    if constexpr (kPipelined<Kernel>) MakeMaps(works);
    notes_ = {.scores = OnDevice<unsigned long long>(1),
              .careful = OnDevice<unsigned>(1),
              .careful_tiles = OnDevice<unsigned char>(tiles_),
              .taken = OnDevice<unsigned long long>(1)};
    OrFail(cudaMemsetAsync(notes_.scores, 0, sizeof(unsigned long long), stream_), "clearing");
    OrFail(cudaMemsetAsync(notes_.careful, 0, sizeof(unsigned), stream_), "clearing");
    OrFail(cudaStreamSynchronize(stream_), "copying works");
  }

  void MakeMaps(const std::vector<AttentionWork>& works) {
    TensorMapEncoder encoder;
    OrFail(encoder.Prepare(), "asking the driver for tensor maps");
    std::vector<TensorMap> maps(2 * works.size());
    for (size_t i = 0; i < works.size(); ++i) {
      OrFail(encoder.Make(works[i], maps[2 * i], maps[2 * i + 1]), "making tensor maps");
    }
    maps_ = OnDevice<TensorMap>(static_cast<int64_t>(maps.size()));
    OrFail(cudaMemcpyAsync(maps_, maps.data(), maps.size() * sizeof(TensorMap),
                           cudaMemcpyHostToDevice, stream_),
           "copying tensor maps");
    cudaDeviceProp properties{};
    OrFail(cudaGetDeviceProperties(&properties, 0), "asking for multiprocessors");
    blocks_ = std::min<int64_t>(tiles_, properties.multiProcessorCount);
    OrFail(cudaStreamSynchronize(stream_), "copying tensor maps");
  }

  double SecondsOfLaunch() {
    const auto start = std::chrono::steady_clock::now();
    OrFail(cudaMemsetAsync(notes_.taken, 0, sizeof(unsigned long long), stream_), "clearing");
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(kPipelined<Kernel> ? blocks_ : tiles_));
    config.blockDim = dim3(Kernel::kThreads);
    config.dynamicSmemBytes = Kernel::kSharedBytes;
    config.stream = stream_;
    const AttentionWork* const works = works_;
    if constexpr (kPipelined<Kernel>) {
      const TensorMap* const maps = maps_;
      OrFail(cudaLaunchKernelEx(&config, FunctionOf<Kernel>(), works, kHeads, maps, tiles_, notes_),
             "starting the kernel");
    } else {
      OrFail(cudaLaunchKernelEx(&config, FunctionOf<Kernel>(), works, kHeads, notes_),
             "starting the kernel");
    }
    OrFail(cudaStreamSynchronize(stream_), "the kernel");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  const Options options_;
  const bool causal_;
  const cudaStream_t stream_;
  uint16_t* tensors_[4] = {};  // Q, K, V and out, [rows * dilation, kHeads, dim]
  std::vector<uint16_t> numbers_[3];
  AttentionWork* works_ = nullptr;
  TensorMap* maps_ = nullptr;  // only if kPipelined
  int64_t blocks_ = 0;         // only if kPipelined
  LaunchNotes notes_;
  int64_t tiles_ = 0;
};

template <typename Kernel>
bool Measure(const Options& options, bool causal, cudaStream_t stream) {
  Layer<Kernel> layer(options, causal, stream);
  const double rate = layer.Rate(), error = layer.Error();
  const bool right = error <= kMostError;  // false for NaN
  std::printf("| %s | %d | %s | %lld | %lld | %.4g | %s%.1e |\n", NameOf<Kernel>(), Kernel::kDim,
              causal ? "causal" : "dense", static_cast<long long>(options.rows),
              static_cast<long long>(options.dilation), rate, right ? "" : "WRONG: ", error);
  std::fflush(stdout);
  return right;
}

// The number after `name`; 0 for another word or a number outside [1, 2^20].
int64_t NumberOf(const char* word, const char* name) {
  if (std::strncmp(word, name, std::strlen(name)) != 0) return 0;
  char* end = nullptr;
  const long long number = std::strtoll(word + std::strlen(name), &end, 10);
  return *end == '\0' && number >= 1 && number <= 1 << 20 ? number : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      options = {.rows = 200, .dilation = 1, .warm_seconds = 0, .rounds = 1};
    } else if (const int64_t rows = NumberOf(argv[i], "--rows=")) {
      options.rows = rows;
    } else if (const int64_t dilation = NumberOf(argv[i], "--dilation=")) {
      options.dilation = dilation;
    } else {
      std::fprintf(stderr, "hopper_alone: no option %s\n", argv[i]);
      return 2;
    }
  }
  int gpus = 0;
  cudaDeviceProp properties{};
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0 ||
      cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    std::fprintf(stderr, "hopper_alone: no GPU of compute capability 9.0\n");
    return 3;
  }
  cudaStream_t stream = nullptr;
  OrFail(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  std::printf("%s\n\n| kernel | head dim | pattern | rows | dilation | TFLOP/s | error |\n",
              properties.name);
  std::printf("| --- | --- | --- | --- | --- | --- | --- |\n");
  bool right = true;
  for (const bool causal : {false, true}) {
    right = Measure<Dim64>(options, causal, stream) && right;
    right = Measure<Dim128>(options, causal, stream) && right;
  }
  for (const bool causal : {false, true}) {
    right = Measure<Pipelined64>(options, causal, stream) && right;
    right = Measure<Pipelined128>(options, causal, stream) && right;
    right = Measure<Polynomial64>(options, causal, stream) && right;
  }
  cudaStreamDestroy(stream);
  return right ? 0 : 1;
}
