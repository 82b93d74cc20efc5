// Attention of the engine in GFLOP/s beside the multiply-add peak of the same run, as a Markdown
// table, which ./dev bench records.
//
//   engine_bench                     everything, best of 5 rounds: about ten minutes
//   engine_bench float32 64          cases with all words: type, head dim, pattern, threads
//   engine_bench --rounds=2 causal
//   engine_bench --quick             a smoke test: small, one round
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "bench/measure.h"
#include "engine/device/device.h"
#include "engine/spec/numbers.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kHeads = 8;
constexpr int64_t kWindow = 1024;
constexpr int64_t kWindowRows = 8;  // times the rows of other patterns

struct Options {
  int rounds = 5;
  int64_t rows = 8192;
  std::vector<std::string> words;
};

struct Case {
  DataType dtype = DataType::kFloat32;
  int64_t dim = 64;
  int64_t dilation = 1;
  bool causal = false;
  bool window = false;  // causal too
  float softcap = 0;
  int threads = 1;
  double best_gflops = 0;

  std::string Type() const {
    return dtype == DataType::kFloat32    ? "float32"
           : dtype == DataType::kBFloat16 ? "bfloat16"
                                          : "float16";
  }
  std::string Pattern() const {
    if (window) return absl::StrCat("window-", kWindow);
    if (softcap > 0) return "softcap";
    return causal ? "causal" : dilation == 1 ? "dense" : absl::StrCat("dilation-", dilation);
  }
  int64_t Rows(int64_t rows) const { return window ? rows * kWindowRows : rows; }
  double Scores(int64_t rows) const {
    const auto n = static_cast<double>(Rows(rows)), w = static_cast<double>(kWindow);
    if (window && n > w) return kHeads * (0.5 * w * (w + 1) + (n - w) * w);
    return kHeads * (causal ? 0.5 * n * (n + 1) : n * n);
  }
  bool Has(const std::string& word) const {
    return word == Type() || word == absl::StrCat(dim) || word == Pattern() ||
           word == absl::StrCat("threads-", threads);
  }
};

// Q, K, V and out, each [rows * dilation, kHeads, dim].
class Tensors {
 public:
  Tensors(Device& device, DataType dtype, int64_t elements) {
    std::mt19937_64 random(1);
    // Repeats values with a period that no power of two divides, so that rows differ.
    const std::vector<float> values = testing::RandomValues(262'139, random);
    for (size_t t = 0; t < 4; ++t) {
      buffers_[t] = device.Allocate(elements * ElementBytes(dtype)).value();
      if (t == 3) break;
      for (int64_t i = 0; i < elements; ++i) {
        StoreElement(dtype, buffers_[t]->data(), i,
                     values[(i + 7919 * t) % static_cast<int64_t>(values.size())]);
      }
    }
    lse_.resize(elements / 64);
  }

  // rows: times shape.dilation, up to the elements.
  std::vector<AttentionTask> Tasks(const Case& shape, int64_t rows) {
    std::vector<AttentionTask> tasks(kHeads);
    const int64_t row_stride = shape.dilation * kHeads * shape.dim;
    for (int64_t head = 0; head < kHeads; ++head) {
      AttentionTask& task = tasks[head];
      const auto data = [&](int tensor) {
        return buffers_[tensor]->data() + head * shape.dim * ElementBytes(shape.dtype);
      };
      task.dtype = task.out_dtype = shape.dtype;
      task.query_rows = task.key_rows = rows;
      task.head_dim = task.value_dim = shape.dim;
      task.q = {.data = data(0), .row_stride = row_stride};
      task.k = {.data = data(1), .row_stride = row_stride};
      task.v = {.data = data(2), .row_stride = row_stride};
      task.out = {.data = data(3), .row_stride = row_stride};
      task.lse = {.data = lse_.data() + head, .row_stride = shape.dilation * kHeads};
      task.scale = 1.0f / std::sqrt(static_cast<float>(shape.dim));
      if (shape.causal) task.mask = Mask::kDiagonal;
      if (shape.window) task.left = kWindow - 1;
      task.change.softcap = shape.softcap;
    }
    return tasks;
  }

 private:
  std::unique_ptr<Buffer> buffers_[4];
  std::vector<float> lse_;
};

std::vector<Case> Cases(const Options& options, int all_threads) {
  std::vector<Case> cases;
  std::vector<int> threads = {1};
  if (all_threads > 1) threads.push_back(all_threads);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    for (const int64_t dim : {64, 128}) {
      for (const int count : threads) {
        std::vector<Case> patterns;
        for (const int64_t dilation : {1, 2, 4, 8}) patterns.push_back({.dilation = dilation});
        patterns.insert(
            patterns.begin() + 1,
            {Case{.causal = true}, Case{.causal = true, .window = true}, Case{.softcap = 30}});
        for (Case& one : patterns) {
          one.dtype = dtype;
          one.dim = dim;
          one.threads = count;
          if (std::all_of(options.words.begin(), options.words.end(),
                          [&](const std::string& word) { return one.Has(word); })) {
            cases.push_back(one);
          }
        }
      }
    }
  }
  return cases;
}

struct Limits {
  std::map<int, double> multiply_add;  // GFLOP/s
};

void Raise(double& best, double value) { best = std::max(best, value); }

void MeasureOnce(Case& one, Device& device, Tensors& tensors, int64_t rows, Limits& limits) {
  Raise(limits.multiply_add[one.threads], MultiplyAddGflops(one.threads));
  const std::vector<AttentionTask> tasks = tensors.Tasks(one, one.Rows(rows));
  const double seconds = SecondsOf([&] {
    if (const auto figures = device.Attend(tasks, {}); !figures.ok()) {
      std::fprintf(stderr, "%s\n", figures.status().ToString().c_str());
      std::exit(1);
    }
  });
  Raise(one.best_gflops, 4.0 * one.dim * one.Scores(rows) / seconds * 1e-9);
}

void Attention(const Options& options) {
  const int all_threads = MakeDevice({}).value()->info().threads;
  std::vector<Case> cases = Cases(options, all_threads);
  if (cases.empty()) return;
  int64_t width = 0;
  for (const Case& one : cases) {
    const int64_t rows = one.Rows(one.dilation);
    width = std::max(width, rows * kHeads * one.dim);
  }
  std::map<int, std::unique_ptr<Device>> devices;
  std::map<DataType, std::unique_ptr<Tensors>> tensors;
  for (const Case& one : cases) {
    std::unique_ptr<Device>& device = devices[one.threads];
    if (device == nullptr) device = MakeDevice({.threads = one.threads}).value();
    std::unique_ptr<Tensors>& data = tensors[one.dtype];
    if (data == nullptr) {
      data = std::make_unique<Tensors>(*device, one.dtype, options.rows * width);
    }
  }

  Limits limits;
  for (int round = 0; round < options.rounds; ++round) {
    for (Case& one : cases) {
      MeasureOnce(one, *devices[one.threads], *tensors[one.dtype], options.rows, limits);
    }
  }

  std::printf("\n%s; kernel %s\n", MachineLine().c_str(),
              devices.begin()->second->info().kernel.c_str());
  for (const auto& [threads, peak] : limits.multiply_add) {
    std::printf("%d thread%s: multiply-add peak %.1f GFLOP/s\n", threads, threads == 1 ? "" : "s",
                peak);
  }
  std::printf("%lld rows selected, %lld heads, best of %d rounds\n\n",
              static_cast<long long>(options.rows), static_cast<long long>(kHeads), options.rounds);
  std::vector<std::vector<std::string>> table = {
      {"type", "head dim", "threads", "pattern", "GFLOP/s", "% of peak", "over dense"}};
  double dense = 0;
  for (const Case& one : cases) {
    if (one.Pattern() == "dense") dense = one.best_gflops;
    table.push_back({one.Type(), absl::StrCat(one.dim), absl::StrCat(one.threads), one.Pattern(),
                     Number(one.best_gflops, 1),
                     Number(100 * one.best_gflops / limits.multiply_add[one.threads], 1),
                     dense > 0 ? Number(one.best_gflops / dense, 3) : "-"});
  }
  PrintTable(table);
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  using namespace hilbert_ring::bench;
  Options options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (word == "--quick") {
      options.rounds = 1;
      options.rows = 256;
    } else if (absl::ConsumePrefix(&word, "--rounds=")) {
      if (!absl::SimpleAtoi(word, &options.rounds) || options.rounds < 1) {
        std::fprintf(stderr, "--rounds: no number above 0\n");
        return 2;
      }
    } else {
      options.words.emplace_back(word);
    }
  }
  Attention(options);
  return 0;
}
