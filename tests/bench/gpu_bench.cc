// Attention on a GPU, as Markdown tables for docs/benchmarks.md: our own kernels beside cuDNN's,
// dense, causal and by strided views; the published configuration of the reports through the
// engine; how many tokens fit; and how long small jobs take.
//
//   gpu_bench                  everything
//   gpu_bench --quick          small sizes, to see that it runs
//   gpu_bench --values=FILE    also writes the numbers that Q, K and V are made of, as
//                              little-endian float32, for tests/bench/gpu_peers.py
//
// Exits with 1 where there is no GPU, or where something could not be measured.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
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
#include "tests/bench/gpu_layer.h"
#include "tests/bench/measure.h"
#include "tests/bench/or_fail.h"
#include "tests/random/random_spec.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring::bench {
namespace {

constexpr int kRounds = 5;

bool failed = false;  // whether something could not be measured

struct Sizes {
  int64_t rows = 32'768;           // selected by a pattern
  int64_t job_tokens = 4'194'304;  // of the reports' configuration
  int64_t most_tokens = 32'000'000;
};

using Row = std::vector<std::string>;

// The cells that `measure` returns, behind those that name what is measured; or why there are none.
Row Measured(Row row, size_t cells, const std::function<Row()>& measure) {
  Row found;
  try {
    found = measure();
  } catch (const std::exception& error) {
    found = {absl::StrCat("not run: ", error.what())};
    failed = true;
  }
  found.resize(cells);
  row.insert(row.end(), found.begin(), found.end());
  return row;
}

constexpr Pattern kPatterns[] = {{"dense", 1, Mask::kNone},
                                 {"causal", 1, Mask::kDiagonal},
                                 {"dilation 2", 2, Mask::kNone},
                                 {"dilation 4", 4, Mask::kNone},
                                 {"dilation 8", 8, Mask::kNone}};

std::string Scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

const char* NameOf(DataType dtype) {
  return dtype == DataType::kFloat32    ? "float32"
         : dtype == DataType::kBFloat16 ? "bfloat16"
                                        : "float16";
}

void Attention(const Sizes& sizes, DataType dtype, const std::vector<std::string>& kernels) {
  const int64_t rows = dtype == DataType::kFloat32 ? sizes.rows / 4 : sizes.rows;
  std::printf("\n%lld rows selected, %lld heads, best of %d rounds\n\n",
              static_cast<long long>(rows), static_cast<long long>(kLayerHeads), kRounds);
  std::vector<Row> table = {
      {"type", "head dim", "pattern", "kernel", "TFLOP/s", "over dense", "error"}};
  for (const int64_t dim : {64, 128}) {
    for (const std::string& kernel : kernels) {
      const auto device = OrFail(MakeDevice(OptionsFor(kernel, 0)));
      double dense = 0;
      for (const Pattern& pattern : kPatterns) {
        table.push_back(
            Measured({NameOf(dtype), absl::StrCat(dim), pattern.name, kernel}, 3, [&]() -> Row {
              Layer layer(*device, dtype, rows, dim, pattern);
              const double rate = layer.Measure(kRounds);
              if (pattern.dilation == 1 && pattern.mask == Mask::kNone) dense = rate;
              return {Number(rate, 1), dense > 0 ? Number(rate / dense, 3) : "",
                      Scientific(layer.Error())};
            }));
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

void Jobs(int64_t tokens, const std::vector<std::string>& kernels) {
  std::printf(
      "\nThe reports' configuration in bfloat16, engine time, rows in the GPU's memory\n\n");
  std::vector<Row> table = {
      {"tokens", "kernel", "seconds", "million tokens/s", "GiB of the GPU's memory"}};
  for (const std::string& kernel : kernels) {
    table.push_back(Measured({absl::StrCat(tokens), kernel}, 3, [&]() -> Row {
      DeviceOptions options = OptionsFor(kernel, 0);
      options.memory_fraction = DeviceOptions{}.memory_fraction;  // as a service's
      const auto device = OrFail(MakeDevice(options));
      const Plan plan = OrFail(MakePlan(ReportsSpec(tokens), 1));
      const auto store = StoreOf(*device, plan);
      double best = 1e9, memory = 0;
      for (int round = 0; round < kRounds; ++round) {
        best = std::min(best, SecondsOf([&] {
                          const auto figures =
                              OrFail(Execute(plan, 0, *store, *device, nullptr, 1, {}));
                          memory = static_cast<double>(figures.memory_peak_bytes);
                        }));
      }
      return {Number(best, 4), Number(1e-6 * static_cast<double>(tokens) / best, 1),
              Number(memory / (1 << 30), 1)};
    }));
  }
  PrintTable(table);
}

void SmallJobs() {
  constexpr int kCalls = 200;
  std::printf("\nSmall jobs in bfloat16, engine time, median of %d\n\n", kCalls);
  std::vector<Row> table = {{"tokens", "microseconds"}};
  for (const int64_t tokens : {256, 1024, 4096, 16'384}) {
    table.push_back(Measured({absl::StrCat(tokens)}, 1, [&]() -> Row {
      const auto device = OrFail(MakeDevice({.kind = DeviceKind::kCuda}));
      const Plan plan = OrFail(MakePlan(ReportsSpec(tokens), 1));
      const auto store = StoreOf(*device, plan);
      std::vector<double> seconds(kCalls);
      for (double& call : seconds) {
        call =
            SecondsOf([&] { OrFail(Execute(plan, 0, *store, *device, nullptr, 1, {}).status()); });
      }
      std::nth_element(seconds.begin(), seconds.begin() + kCalls / 2, seconds.end());
      return {Number(1e6 * seconds[kCalls / 2], 1)};
    }));
  }
  PrintTable(table);
}

void Everything(const Sizes& sizes) {
  if (const auto cudnn = MakeDevice(OptionsFor("cuda/cudnn", 0)); !cudnn.ok()) {
    std::printf("cuDNN is not measured: %s\n", cudnn.status().ToString().c_str());
  }
  std::printf("\n%s\n", OrFail(MakeDevice({.kind = DeviceKind::kCuda}))->info().name.c_str());
  const std::vector<std::string> kernels = CudaKernels();
  std::vector<std::string> with_auto = kernels;
  with_auto.push_back("cuda");  // the best of them, as a service uses it
  Attention(sizes, DataType::kBFloat16, kernels);
  Jobs(sizes.job_tokens, with_auto);
  SmallJobs();
  Attention(sizes, DataType::kFloat16, kernels);
  Attention(sizes, DataType::kFloat32, {"cuda/native"});
  Jobs(sizes.most_tokens, {"cuda"});
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
      if (!bench::WriteLayerValues(std::string(word))) {
        std::fprintf(stderr, "gpu_bench: cannot write %s\n", std::string(word).c_str());
        return 1;
      }
    } else {
      std::fprintf(stderr, "gpu_bench: no option %s\n", argv[i]);
      return 2;
    }
  }
  if (const absl::Status found = FindCudaDevice(0); !found.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", std::string(found.message()).c_str());
    return 1;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // what is measured stays when time is up
  try {
    bench::Everything(sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
  return bench::failed ? 1 : 0;
}
