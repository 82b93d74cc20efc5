// Attention on a GPU, as Markdown tables for docs/benchmarks.md: our own kernels beside cuDNN's,
// dense, causal and by strided views; the published configuration of the reports through the
// engine; how many tokens fit; and how long small jobs take.
//
//   gpu_bench                  everything: about two minutes
//   gpu_bench --quick          small sizes, to see that it runs
//   gpu_bench --values=FILE    also writes the numbers that Q, K and V are made of, as
//                              little-endian float32, for tests/bench/gpu_peers.py
//
// Exits with 1 where there is no GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/device/device.h"
#include "engine/run/executor.h"
#include "engine/spec/numbers.h"
#include "tests/bench/measure.h"
#include "tests/random/random_spec.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kHeads = 8;
constexpr int kRounds = 5;
constexpr int64_t kCheckedRows = 4;  // against float64

struct Sizes {
  int64_t rows = 32'768;           // selected by a pattern
  int64_t job_tokens = 4'194'304;  // of the reports' configuration
  int64_t most_tokens = 32'000'000;
};

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "gpu_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T OrFail(absl::StatusOr<T> result) {
  if (!result.ok()) Fail(result.status());
  return *std::move(result);
}

void OrFail(const absl::Status& status) {
  if (!status.ok()) Fail(status);
}

struct Pattern {
  const char* name;
  int64_t dilation;
  Mask mask;
};
constexpr Pattern kPatterns[] = {{"dense", 1, Mask::kNone},
                                 {"causal", 1, Mask::kDiagonal},
                                 {"dilation 2", 2, Mask::kNone},
                                 {"dilation 4", 4, Mask::kNone},
                                 {"dilation 8", 8, Mask::kNone}};

// Element i of tensor t (0 Q, 1 K, 2 V) of a layer is LayerValues()[(i + 7919 * t) % their number],
// rounded to the type.
std::vector<float> LayerValues() {
  std::mt19937_64 random(1);
  return testing::RandomValues(262'139, random);
}

std::vector<std::byte> Stored(DataType dtype, const std::vector<float>& values) {
  std::vector<std::byte> stored(values.size() * ElementBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(dtype, stored.data(), static_cast<int64_t>(i), values[i]);
  }
  return stored;
}

// Fills `to` with `values` over and over, from byte `first` of them on.
void Repeat(const std::vector<std::byte>& values, size_t first, std::vector<std::byte>& to) {
  for (size_t at = 0; at < to.size();) {
    const size_t bytes = std::min(values.size() - first, to.size() - at);
    std::memcpy(to.data() + at, values.data() + first, bytes);
    at += bytes;
    first = 0;
  }
}

void WriteValues(const std::string& path) {
  const std::vector<float> values = LayerValues();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file.flush()) Fail(absl::UnavailableError(absl::StrCat("cannot write ", path)));
}

// Q, K, V, out [rows * dilation, kHeads, dim] and lse.
class Layer {
 public:
  Layer(Device& device, DataType dtype, int64_t rows, int64_t dim, const Pattern& pattern)
      : device_(device), dtype_(dtype), rows_(rows), dim_(dim), pattern_(pattern) {
    const int64_t elements = rows * pattern.dilation * kHeads * dim;
    const int64_t element = ElementBytes(dtype);
    const std::vector<std::byte> values = Stored(dtype, LayerValues());
    for (int t = 0; t < 4; ++t) {
      buffers_[t] = OrFail(device.Allocate(elements * element));
      if (t == 3) break;
      numbers_[t].resize(elements * element);
      Repeat(values, 7919 * t * element, numbers_[t]);
      OrFail(device.CopyIn(buffers_[t]->data(), numbers_[t].data(), elements * element));
    }
    lse_ = OrFail(device.Allocate(rows * pattern.dilation * kHeads * 4));
    const int64_t row_stride = pattern.dilation * kHeads * dim;
    for (int64_t head = 0; head < kHeads; ++head) {
      AttentionTask task;
      const auto data = [&](int t) { return buffers_[t]->data() + head * dim * element; };
      task.dtype = task.out_dtype = dtype;
      task.query_rows = task.key_rows = rows;
      task.head_dim = task.value_dim = dim;
      task.q = {data(0), 0, row_stride, dim};
      task.k = {data(1), 0, row_stride, dim};
      task.v = {data(2), 0, row_stride, dim};
      task.out = {data(3), 0, row_stride, dim};
      task.lse = {reinterpret_cast<float*>(lse_->data()) + head, 0, pattern.dilation * kHeads, 1};
      task.scale = Scale();
      task.mask = pattern.mask;
      tasks_.push_back(task);
    }
  }

  // TFLOP/s of the best round after one to warm up. Scores above the diagonal do not count.
  double Measure() {
    const double rows = static_cast<double>(rows_);
    const double scores = pattern_.mask == Mask::kDiagonal ? rows * (rows + 1) / 2 : rows * rows;
    double best = 0;
    for (int round = 0; round <= kRounds; ++round) {
      const double seconds = SecondsOf([&] { OrFail(device_.Attend(tasks_, {}).status()); });
      if (round > 0) {
        best = std::max(best, 4e-12 * static_cast<double>(dim_ * kHeads) * scores / seconds);
      }
    }
    return best;
  }

  // Root mean square error of a few rows of the first head, over that of float64's values.
  double Error() {
    const int64_t stride = pattern_.dilation * kHeads * dim_;
    const int64_t element = ElementBytes(dtype_);
    const float scale = Scale();
    double wrong = 0, right = 0;
    for (int64_t n = 0; n < kCheckedRows; ++n) {
      const int64_t row = (2 * n + 1) * rows_ / (2 * kCheckedRows);
      std::vector<std::byte> found(dim_ * element);
      OrFail(device_.CopyOut(found.data(), buffers_[3]->data() + row * stride * element,
                             dim_ * element));
      const int64_t keys = pattern_.mask == Mask::kDiagonal ? row + 1 : rows_;
      std::vector<double> scores(keys), expected(dim_);
      double most = -INFINITY, sum = 0;
      for (int64_t j = 0; j < keys; ++j) {
        for (int64_t x = 0; x < dim_; ++x) {
          scores[j] += double{LoadElement(dtype_, numbers_[0].data(), row * stride + x)} *
                       LoadElement(dtype_, numbers_[1].data(), j * stride + x);
        }
        scores[j] *= scale;
        most = std::max(most, scores[j]);
      }
      for (int64_t j = 0; j < keys; ++j) {
        const double weight = std::exp(scores[j] - most);
        sum += weight;
        for (int64_t x = 0; x < dim_; ++x) {
          expected[x] += weight * LoadElement(dtype_, numbers_[2].data(), j * stride + x);
        }
      }
      for (int64_t x = 0; x < dim_; ++x) {
        const double error = LoadElement(dtype_, found.data(), x) - expected[x] / sum;
        wrong += error * error;
        right += expected[x] / sum * expected[x] / sum;
      }
    }
    return std::sqrt(wrong / right);
  }

 private:
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(dim_)); }

  Device& device_;
  const DataType dtype_;
  const int64_t rows_, dim_;
  const Pattern pattern_;
  std::unique_ptr<Buffer> buffers_[4];
  std::unique_ptr<Buffer> lse_;
  std::vector<std::byte> numbers_[3];
  std::vector<AttentionTask> tasks_;
};

std::string Scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

void Attention(const Sizes& sizes, const std::vector<std::string>& kernels) {
  std::printf("\n%lld rows selected, %lld heads, best of %d rounds\n\n",
              static_cast<long long>(sizes.rows), static_cast<long long>(kHeads), kRounds);
  std::vector<std::vector<std::string>> table = {
      {"type", "head dim", "pattern", "kernel", "TFLOP/s", "over dense", "error"}};
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16, DataType::kFloat32}) {
    const bool wide = dtype == DataType::kFloat32;
    for (const int64_t dim : {64, 128}) {
      for (const std::string& kernel : kernels) {
        if (wide && kernel != "cuda/native") continue;
        const auto device = OrFail(MakeDevice(OptionsFor(kernel, 0)));
        double dense = 0;
        for (const Pattern& pattern : kPatterns) {
          Layer layer(*device, dtype, wide ? sizes.rows / 4 : sizes.rows, dim, pattern);
          const double rate = layer.Measure();
          if (pattern.dilation == 1 && pattern.mask == Mask::kNone) dense = rate;
          table.push_back({wide                           ? "float32"
                           : dtype == DataType::kBFloat16 ? "bfloat16"
                                                          : "float16",
                           absl::StrCat(dim), pattern.name, kernel, Number(rate, 1),
                           Number(rate / dense, 3), Scientific(layer.Error())});
        }
      }
    }
  }
  PrintTable(table);
}

// 8 heads of dimension 64, [2048, 4096, 8192] with [1, 2, 4].
JobSpec ReportsSpec(int64_t tokens) {
  JobSpec spec;
  spec.tokens = tokens;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = spec.value_dim = 64;
  spec.dtype = DataType::kBFloat16;
  spec.branches = {{2048, 1}, {4096, 2}, {8192, 4}};
  return spec;
}

// A store with Q, K and V of the plan's only worker.
std::unique_ptr<ShardStore> StoreOf(Device& device, const Plan& plan) {
  std::mt19937_64 random(3);
  const std::vector<float> values = testing::RandomValues(262'139, random);
  std::vector<uint16_t> piece(values.size());
  for (size_t i = 0; i < piece.size(); ++i) piece[i] = FloatToBFloat16(values[i]);
  const auto piece_bytes = static_cast<int64_t>(piece.size() * sizeof(uint16_t));
  auto store = OrFail(ShardStore::Make(device, plan, 0));
  for (const TensorKind kind : {TensorKind::kQ, TensorKind::kK, TensorKind::kV}) {
    const int64_t bytes = plan.spec.tokens * RowBytes(plan.spec, kind);
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
      OrFail(
          device.CopyIn(store->Row(kind, 0) + at, piece.data(), std::min(piece_bytes, bytes - at)));
    }
  }
  return store;
}

void Jobs(const Sizes& sizes) {
  std::printf(
      "\nThe reports' configuration in bfloat16, engine time, rows in the GPU's memory\n\n");
  std::vector<std::vector<std::string>> table = {
      {"tokens", "seconds", "million tokens/s", "GiB of the GPU's memory"}};
  const auto device = OrFail(MakeDevice({.kind = DeviceKind::kCuda}));
  for (const int64_t tokens : {sizes.job_tokens, sizes.most_tokens}) {
    const Plan plan = OrFail(MakePlan(ReportsSpec(tokens), 1));
    const auto store = StoreOf(*device, plan);
    double best = 1e9, memory = 0;
    for (int round = 0; round < 3; ++round) {
      best = std::min(best, SecondsOf([&] {
                        const auto figures =
                            OrFail(Execute(plan, 0, *store, *device, nullptr, 1, {}));
                        memory = static_cast<double>(figures.memory_peak_bytes);
                      }));
    }
    table.push_back({absl::StrCat(tokens), Number(best, 4),
                     Number(1e-6 * static_cast<double>(tokens) / best, 1),
                     Number(memory / (1 << 30), 1)});
  }
  PrintTable(table);
}

void SmallJobs() {
  constexpr int kCalls = 200;
  std::printf("\nSmall jobs in bfloat16, engine time, median of %d\n\n", kCalls);
  std::vector<std::vector<std::string>> table = {{"tokens", "microseconds"}};
  const auto device = OrFail(MakeDevice({.kind = DeviceKind::kCuda}));
  for (const int64_t tokens : {256, 1024, 4096, 16'384}) {
    const Plan plan = OrFail(MakePlan(ReportsSpec(tokens), 1));
    const auto store = StoreOf(*device, plan);
    std::vector<double> seconds(kCalls);
    for (double& call : seconds) {
      call = SecondsOf([&] { OrFail(Execute(plan, 0, *store, *device, nullptr, 1, {}).status()); });
    }
    std::nth_element(seconds.begin(), seconds.begin() + kCalls / 2, seconds.end());
    table.push_back({absl::StrCat(tokens), Number(1e6 * seconds[kCalls / 2], 1)});
  }
  PrintTable(table);
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  using namespace hilbert_ring;
  bench::Sizes sizes;
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (word == "--quick") {
      sizes = {.rows = 512, .job_tokens = 16'384, .most_tokens = 65'536};
    } else if (absl::ConsumePrefix(&word, "--values=")) {
      bench::WriteValues(std::string(word));
    } else {
      std::fprintf(stderr, "gpu_bench: no option %s\n", argv[i]);
      return 2;
    }
  }
  if (const absl::Status found = FindCudaDevice(0); !found.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", std::string(found.message()).c_str());
    return 1;
  }
  if (const auto cudnn = MakeDevice(OptionsFor("cuda/cudnn", 0)); !cudnn.ok()) {
    std::printf("cuDNN is not measured: %s\n", cudnn.status().ToString().c_str());
  }
  std::printf("\n%s\n", MakeDevice({.kind = DeviceKind::kCuda}).value()->info().name.c_str());
  bench::Attention(sizes, CudaKernels());
  bench::Jobs(sizes);
  bench::SmallJobs();
  return 0;
}
