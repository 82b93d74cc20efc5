// Attention on a GPU, as Markdown tables whose rows are printed as they come.
//
//   gpu_bench [--part=PART] [--kernel=KERNEL] [--type=TYPE] [--tokens=N] [--quick] [--values=FILE]
//
//   --part=device     the GPU's name
//          smoke      checks the results of small tasks of each type and of a small job, one kernel
//          layers     dense, causal, in a window and by strided views, at head dims 64 and 128
//          jobs       the published configuration of the reports, through the engine
//          small, resident   small jobs; a job that fills the GPU's memory
//          copies     rows between host memory and the GPU, with and without pins
//          causal     causal layers of 2,048 to 131,072 rows
//          few        1 to 16 queries over a million keys
//                     default: all but the first two
//   --kernel=KERNEL   cuda/native, cuda/native-sm90, cuda/native-sm90-pipelined, cuda/cudnn, or
//                     cuda: the best of them, like a service. Default: all
//   --type=TYPE       bfloat16 (default), float16 or float32, of layers
//   --tokens=N        tokens of jobs (default: the published 425984; resident: what fits)
//   --quick           a smoke test: small sizes, one round
//   --values=FILE     only writes the numbers of Q, K and V, little-endian float32, without a GPU
//                     (bench/gpu_peers.py reads them)
//
// Times are wall-clock times of whole calls: the median of kRounds after 200 ms. Exits with 1 after
// a failed or wrong measurement, with 2 for wrong options, with 3 without a GPU.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "bench/gpu_job.h"
#include "bench/gpu_layer.h"
#include "bench/measure.h"
#include "bench/or_fail.h"
#include "bench/row_printer.h"
#include "engine/device/device.h"
#include "engine/spec/job_spec_json.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kPublishedTokens = 425'984;
constexpr int64_t kResidentTokens = 32'000'000;
constexpr int64_t kLayerRows = 32'768;  // selected by a pattern
constexpr int64_t kWindow = 1024;       // keys of a causal row
constexpr int kSmallCalls = 200;

// After this many tokens "cuda" has tried each shape both ways and decided: in the tenth job of the
// published size (AttentionSplitOptions::worth_scores).
constexpr int64_t kDecidingTokens = 16 * kPublishedTokens;

struct Options {
  std::string part, kernel;
  DataType dtype = DataType::kBFloat16;
  int64_t tokens = 0;  // 0: the published number
  bool quick = false;

  Timing timing() const { return quick ? Timing{0, 1, 1} : Timing{}; }
};

using Row = std::vector<std::string>;

constexpr Pattern kPatterns[] = {{"dense", 1, Mask::kNone},
                                 {"causal", 1, Mask::kDiagonal},
                                 {"window 1,024", 1, Mask::kDiagonal, kWindow - 1},
                                 {"dilation 2", 2, Mask::kNone},
                                 {"dilation 4", 4, Mask::kNone},
                                 {"dilation 8", 8, Mask::kNone}};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    if (!options.kernel.empty()) kernels_ = {options.kernel};
  }

  // Returns false after a failed or wrong measurement.
  bool Run() {
    const std::string& part = options_.part;
    if (part == "device") {
      std::printf("%s\n", OrFail(MakeDevice({.kind = DeviceKind::kCuda}))->info().name.c_str());
      return true;
    }
    if (kernels_.empty()) {
      kernels_ = CudaKernels();
      if (const auto cudnn = MakeDevice(OptionsFor("cuda/cudnn", 0)); !cudnn.ok()) {
        std::printf("cuDNN is not measured: %s\n", cudnn.status().ToString().c_str());
      }
    }
    if (part == "smoke") Smoke();
    if (part.empty() || part == "layers") Layers();
    if (part.empty() || part == "jobs") Jobs(JobTokens(kPublishedTokens));
    if (part.empty() || part == "small") SmallJobs();
    if (part.empty() || part == "resident") Jobs(JobTokens(kResidentTokens));
    if (part.empty() || part == "copies") Copies();
    if (part.empty() || part == "causal") Causal();
    if (part.empty() || part == "few") FewQueries();
    return !failed_;
  }

 private:
  int64_t JobTokens(int64_t usual) const {
    return options_.tokens > 0 ? options_.tokens : options_.quick ? 512 : usual;
  }

  std::unique_ptr<Device> DeviceOf(const std::string& kernel, double memory_fraction = 0.5) const {
    DeviceOptions options = OptionsFor(kernel, 0);
    options.memory_fraction = memory_fraction;
    auto device = OrFail(MakeDevice(options));
    if (kernel != "cuda" && device->info().kernel != kernel) {
      throw std::runtime_error(
          absl::StrCat("this GPU or build has ", device->info().kernel, " instead"));
    }
    return device;
  }

  // Prints `row`, then the cells of `measure` or its error.
  void Print(const RowPrinter& table, Row row, const std::function<Row()>& measure) {
    Row found;
    try {
      found = measure();
    } catch (const std::exception& error) {
      found = {absl::StrCat("not run: ", error.what())};
      failed_ = true;
    }
    row.insert(row.end(), found.begin(), found.end());
    table.Print(std::move(row));
  }

  // The error as a cell. A wrong or NaN error fails the program.
  std::string ErrorCell(double error, DataType dtype) {
    char text[64];
    const bool right = error <= MostError(dtype);
    std::snprintf(text, sizeof(text), right ? "%.1e" : "WRONG: %.1e, may be %.1e", error,
                  MostError(dtype));
    if (!right) failed_ = true;
    return text;
  }

  void Smoke() {
    std::printf("\nSmall tasks, and whether they are right\n\n");
    const RowPrinter table({"kernel", "type", "head dim", "pattern", "error"});
    for (const std::string& kernel : kernels_) {
      std::unique_ptr<Device> device;
      Print(table, {kernel, "", "", "starts"}, [&]() -> Row {
        device = DeviceOf(kernel);
        return {};
      });
      if (device == nullptr) continue;
      for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
        for (const int64_t dim : {64, 128}) {
          for (const Pattern& pattern : kPatterns) {
            if (pattern.dilation > 2) continue;
            Print(table,
                  {kernel, std::string(DataTypeName(dtype)), absl::StrCat(dim), pattern.name},
                  [&]() -> Row {
                    Layer layer(*device, dtype, options_.quick ? 128 : 3000, dim, pattern);
                    layer.Rate({0, 1, 1});
                    return {ErrorCell(layer.Error(), dtype)};
                  });
          }
        }
      }
      const int64_t tokens = options_.quick ? 256 : 16'384;
      Print(table, {kernel, "bfloat16", "64", absl::StrCat("a job of ", tokens, " tokens")},
            [&]() -> Row {
              Job job(*device, Published(tokens));
              job.Run();
              return {ErrorCell(job.Error(), DataType::kBFloat16)};
            });
    }
  }

  void Layers() {
    const DataType dtype = options_.dtype;
    const int64_t rows = options_.quick                ? 128
                         : dtype == DataType::kFloat32 ? kLayerRows / 4
                                                       : kLayerRows;
    std::printf("\n%lld rows selected, %lld heads, median of %d after %.1f s\n\n",
                static_cast<long long>(rows), static_cast<long long>(kLayerHeads),
                options_.timing().rounds, options_.timing().warm_seconds);
    const RowPrinter table(
        {"type", "head dim", "pattern", "kernel", "TFLOP/s", "over dense", "error"});
    for (const std::string& kernel : kernels_) {
      std::unique_ptr<Device> device;
      for (const int64_t dim : {64, 128}) {
        double dense = 0;
        for (const Pattern& pattern : kPatterns) {
          Print(table, {std::string(DataTypeName(dtype)), absl::StrCat(dim), pattern.name, kernel},
                [&]() -> Row {
                  if (device == nullptr) device = DeviceOf(kernel);
                  Layer layer(*device, dtype, rows, dim, pattern);
                  const double rate = layer.Rate(options_.timing());
                  if (pattern.dilation == 1 && pattern.mask == Mask::kNone) dense = rate;
                  return {Number(rate, options_.quick ? 6 : 1),
                          dense > 0 ? Number(rate / dense, 3) : "",
                          ErrorCell(layer.Error(), dtype)};
                });
        }
      }
    }
  }

  void Jobs(int64_t tokens) {
    std::printf(
        "\nThe published configuration in bfloat16, engine time, rows in the GPU's memory; "
        "cuda: after %lld tokens, by when each shape's kernel is chosen\n\n",
        static_cast<long long>(options_.quick ? 0 : kDecidingTokens));
    const RowPrinter table({"tokens", "kernel", "seconds", "million tokens/s", "first job, seconds",
                            "GiB of the GPU's memory", "error"});
    for (const std::string& kernel : kernels_) {
      Print(table, {absl::StrCat(tokens), kernel}, [&]() -> Row {
        const auto device = DeviceOf(kernel, DeviceOptions{}.memory_fraction);  // as a service's
        Job job(*device, Published(tokens));
        double memory = 0;
        Timing timing = options_.timing();
        if (kernel == "cuda" && !options_.quick) {
          timing.warm_rounds = static_cast<int>((kDecidingTokens + tokens - 1) / tokens);
        }
        const Timed timed =
            Measure(timing, [&] { memory = static_cast<double>(job.Run().memory_peak_bytes); });
        return {Number(timed.median, 4),
                Number(1e-6 * static_cast<double>(tokens) / timed.median, options_.quick ? 6 : 1),
                Number(timed.first, 4), Number(memory / (1 << 30), options_.quick ? 6 : 1),
                ErrorCell(job.Error(), DataType::kBFloat16)};
      });
    }
  }

  void SmallJobs() {
    std::printf("\nSmall jobs in bfloat16, engine time, median of %d\n\n", kSmallCalls);
    const RowPrinter table({"tokens", "kernel", "microseconds"});
    for (const std::string& kernel : kernels_) {
      std::unique_ptr<Device> device;
      for (const int64_t tokens : {256, 1024, 4096, 16'384}) {
        if (options_.quick && tokens > 256) break;
        Print(table, {absl::StrCat(tokens), kernel}, [&]() -> Row {
          if (device == nullptr) device = DeviceOf(kernel);
          Job job(*device, Published(tokens));
          Timing timing = options_.timing();
          if (!options_.quick) timing.rounds = kSmallCalls;
          const Timed timed = Measure(timing, [&] { job.Run(); });
          return {Number(1e6 * timed.median, 1)};
        });
      }
    }
  }

  // A CPU's memory, then the same memory pinned.
  void Copies() {
    const int64_t bytes = options_.quick ? 1 << 20 : int64_t{1} << 30;
    std::printf("\nCopies of %lld MiB between host memory and the GPU\n\n",
                static_cast<long long>(bytes >> 20));
    const RowPrinter table({"host memory", "GB/s in", "GB/s out", "seconds to pin"});
    const auto device = DeviceOf("cuda/native");
    const auto there = OrFail(device->Allocate(bytes));
    std::vector<std::byte> here(bytes, std::byte{1});
    std::unique_ptr<HostPin> pin;
    for (const char* const memory : {"pageable", "pinned"}) {
      Print(table, {memory}, [&]() -> Row {
        double pinning = 0;
        if (memory == std::string("pinned")) {
          pinning = SecondsOf([&] { pin = OrFail(device->Pin(here.data(), bytes)); });
        }
        const auto rate = [&](const std::function<void()>& copy) {
          return Number(1e-9 * static_cast<double>(bytes) / Measure(options_.timing(), copy).median,
                        1);
        };
        return {rate([&] { OrFail(device->CopyIn(there->data(), here.data(), bytes)); }),
                rate([&] { OrFail(device->CopyOut(here.data(), there->data(), bytes)); }),
                Number(pinning, 3)};
      });
    }
  }

  void Causal() {
    std::printf("\nCausal layers in bfloat16, %lld heads\n\n", static_cast<long long>(kLayerHeads));
    const RowPrinter table({"rows", "head dim", "kernel", "TFLOP/s", "error"});
    const auto sizes = options_.quick ? std::vector<int64_t>{128}
                                      : std::vector<int64_t>{2048, 8192, 32'768, 131'072};
    for (const std::string& kernel : kernels_) {
      std::unique_ptr<Device> device;
      for (const int64_t dim : {64, 128}) {
        for (const int64_t rows : sizes) {
          Print(table, {absl::StrCat(rows), absl::StrCat(dim), kernel}, [&]() -> Row {
            if (device == nullptr) device = DeviceOf(kernel);
            Layer layer(*device, DataType::kBFloat16, rows, dim, {"causal", 1, Mask::kDiagonal});
            const double rate = layer.Rate(options_.timing());
            return {Number(rate, options_.quick ? 6 : 1),
                    ErrorCell(layer.Error(), DataType::kBFloat16)};
          });
        }
      }
    }
  }

  static JobSpec FewQueriesOf(int64_t queries, int64_t keys) {
    JobSpec spec = PlainSpec({.tokens = queries, .heads = 32, .dim = 128, .segment = keys});
    spec.kv_heads = 8;
    spec.key_tokens = keys;
    spec.dtype = DataType::kBFloat16;
    return spec;
  }

  // The error is of fewer keys, because float64's rows take long.
  void FewQueries() {
    const int64_t keys = options_.quick ? 1024 : int64_t{1} << 20;
    std::printf("\nFew queries of 32 heads over %lld keys of 8 heads of 128, bfloat16\n\n",
                static_cast<long long>(keys));
    const RowPrinter table({"queries", "kernel", "microseconds", "GB/s of keys", "error"});
    for (const std::string& kernel : kernels_) {
      const auto device = DeviceOf(kernel);
      for (const int64_t queries : {1, 4, 16}) {
        Print(table, {absl::StrCat(queries), kernel}, [&]() -> Row {
          Job job(*device, FewQueriesOf(queries, keys));
          Job checked(*device, FewQueriesOf(queries, keys / 64));
          checked.Run();
          const double seconds = Measure(options_.timing(), [&] { job.Run(); }).median;
          return {Number(1e6 * seconds, 1),
                  Number(1e-9 * static_cast<double>(job.key_bytes()) / seconds, 1),
                  ErrorCell(checked.Error(), DataType::kBFloat16)};
        });
      }
    }
  }

  static JobSpec Published(int64_t tokens) { return PublishedSpec(tokens, DataType::kBFloat16); }

  const Options options_;
  std::vector<std::string> kernels_;
  bool failed_ = false;  // a measurement failed or was wrong
};

// Returns an error of the command line, or "". `values`: the file to write numbers to.
std::string Parse(int argc, char** argv, Options& options, std::string& values) {
  constexpr const char* kParts[] = {"device",   "smoke",  "layers", "jobs", "small",
                                    "resident", "copies", "causal", "few"};
  constexpr const char* kKernels[] = {"cuda/native", "cuda/native-sm90",
                                      "cuda/native-sm90-pipelined", "cuda/cudnn", "cuda"};
  const auto among = [](const auto& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (word == "--quick") {
      options.quick = true;
    } else if (absl::ConsumePrefix(&word, "--part=")) {
      options.part = std::string(word);
      if (!among(kParts, options.part)) return absl::StrCat("no part ", word);
    } else if (absl::ConsumePrefix(&word, "--kernel=")) {
      options.kernel = std::string(word);
      if (!among(kKernels, options.kernel)) return absl::StrCat("no kernel ", word);
    } else if (absl::ConsumePrefix(&word, "--type=")) {
      bool found = false;
      for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
        if (std::string(DataTypeName(dtype)) != word) continue;
        options.dtype = dtype;
        found = true;
      }
      if (!found) return absl::StrCat("no type ", word);
    } else if (absl::ConsumePrefix(&word, "--tokens=")) {
      if (!absl::SimpleAtoi(word, &options.tokens) || options.tokens < 1) {
        return absl::StrCat("--tokens is ", word, ", must be at least 1");
      }
    } else if (absl::ConsumePrefix(&word, "--values=")) {
      values = std::string(word);
    } else {
      return absl::StrCat("no option ", argv[i]);
    }
  }
  return "";
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  using namespace hilbert_ring;
  bench::Options options;
  std::string values;
  const std::string wrong = bench::Parse(argc, argv, options, values);
  if (!wrong.empty()) {
    std::fprintf(stderr, "gpu_bench: %s\n", wrong.c_str());
    return 2;
  }
  if (!values.empty()) {
    if (bench::WriteLayerValues(values)) return 0;
    std::fprintf(stderr, "gpu_bench: cannot write %s\n", values.c_str());
    return 1;
  }
  if (const absl::Status found = FindCudaDevice(0); !found.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", std::string(found.message()).c_str());
    return 3;
  }
  try {
    return bench::Bench(options).Run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
