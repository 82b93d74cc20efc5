// The published job with its tensors passed by path, beside the engine alone and the same job with
// its tensors sent. Two bounds: a socket that only carries the tensors' bytes, and a disk that only
// reads them. All are interleaved in one run. Prints Markdown tables, which ./dev bench records,
// and each measurement at once on stderr.
//
//   reference_bench                      425,984 tokens, both types, without and with an order
//   reference_bench --type=float32 --order=off --rounds=5
//   reference_bench --quick              16,384 tokens, two rounds
//   reference_bench --folder=/srv        folder of files in memory (/dev/shm)
//   reference_bench --disk=/srv          folder of files whose pages are dropped before a job (the
//                                        system's temporary folder); none: without these rows
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/loopback.h"
#include "bench/or_fail.h"
#include "bench/page_cache.h"
#include "bench/published_job.h"
#include "bench/reference_job.h"
#include "bench/row_printer.h"

namespace hilbert_ring::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kNoDisk[] = "none";

std::string TemporaryFolder() {
  std::error_code error;
  return std::filesystem::temp_directory_path(error);
}

struct Options {
  std::string folder = "/dev/shm";
  std::string disk = TemporaryFolder();
  std::vector<std::string> types = {"float32", "bfloat16"};
  std::vector<std::string> orders = {"off", "on"};
  int64_t tokens = 425'984;
  int64_t rounds = 3;
  int64_t workers = 1;
};

double ProcessorSeconds(pid_t pid) {
  clockid_t clock = {};
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int64_t BytesIn(const JobSpec& spec) {
  return spec.tokens * (RowBytes(spec, TensorKind::kQ) + RowBytes(spec, TensorKind::kK) +
                        RowBytes(spec, TensorKind::kV));
}

int64_t BytesOut(const JobSpec& spec) { return spec.tokens * RowBytes(spec, TensorKind::kOut); }

struct Path {
  std::string name;
  std::function<void()> run;
  std::function<absl::Status()> before = nullptr;  // untimed; its error skips the path
  int64_t bytes = 0;                   // carried; 0 for a job, which is compared with the engine
  std::string why_not = "";            // the reason of a skipped path
  std::vector<double> seconds = {};    // by round
  std::vector<double> processor = {};  // by round; CPU seconds of all processes
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Best(const std::vector<double>& values) { return std::ranges::min(values); }

// Files and services of one type. Their jobs run without and with an order.
class Bench {
 public:
  Bench(const Options& options, const RowPrinter& table, DataType dtype)
      : options_(options), table_(table), dtype_(dtype) {
    memory_ = MakePlace(options.folder);
    if (options.disk.empty() || options.disk == kNoDisk) {
      no_disk_ = "no folder is given";
    } else if (LiesInMemory(options.disk)) {
      no_disk_ = options.disk + " lies in memory";
    } else {
      disk_ = MakePlace(options.disk);
    }
  }

  void Measure(bool hilbert) {
    const JobSpec spec = PublishedJob(options_.tokens, dtype_, hilbert);
    const auto device = OrFail(MakeDevice({}));
    OneShardJob engine = EngineJob(spec, *device, memory_->files());
    std::vector<Path> paths = PathsOf(spec, engine);
    for (int64_t round = 0; round <= options_.rounds; ++round) {  // round 0 is a warm-up
      for (Path& path : paths) Run(spec, round, path);
    }
    const Path engine_alone = paths.front();
    const Path socket = *std::ranges::find(paths, kSocket, &Path::name);
    paths.push_back(Bound("sent, bound: the engine, then the socket", engine_alone, socket));
    for (const Path& path : paths) Print(spec, path, engine_alone);
  }

 private:
  static constexpr const char* kSocket = "the tensors' bytes over loopback TCP, nothing else";

  std::unique_ptr<Place> MakePlace(const std::string& folder) const {
    return std::make_unique<Place>(folder, PublishedJob(options_.tokens, dtype_, false),
                                   static_cast<int>(options_.workers));
  }

  // The paths refer to spec and engine.
  std::vector<Path> PathsOf(const JobSpec& spec, OneShardJob& engine) const {
    const int64_t in = BytesIn(spec), out = BytesOut(spec);
    const auto in_memory = [this, &spec] { memory_->RunByReference(spec); };
    std::vector<Path> paths = {
        {"engine", [&engine] { engine.Run(); }},
        {"files in memory, the first job", in_memory},
        {"files in memory, the job that follows", in_memory},
        {"sent, the job that follows", [this, &spec] { memory_->RunSent(spec); }},
        {kSocket, [in, out] { OrFail(CarryOverLoopback(in, out)); }, nullptr, in + out}};
    if (!disk_) {
      paths.push_back({.name = "files on a disk, pages dropped", .why_not = no_disk_});
      return paths;
    }
    const auto drop = [this] { return disk_->files().DropInputPages(); };
    const auto on_disk = [this, &spec] { disk_->RunByReference(spec); };
    paths.push_back({"the inputs' bytes from the disk, pages dropped, nothing else",
                     [this] { disk_->files().ReadInputs(); }, drop, in});
    paths.push_back({"files on a disk, pages dropped, the first job", on_disk, drop});
    paths.push_back({"files on a disk, pages in memory, the job that follows", on_disk});
    return paths;
  }

  void Run(const JobSpec& spec, int64_t round, Path& path) const {
    if (!path.why_not.empty()) return;
    if (path.before) {
      if (const absl::Status ready = path.before(); !ready.ok()) {
        path.why_not = std::string(ready.message());
        return;
      }
    }
    const double begun = Processor();
    const Clock::time_point start = Clock::now();
    path.run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double processor = Processor() - begun;
    std::fprintf(stderr, "%s, order %s, round %lld: %s: %.3f s, processor %.2f s\n", TypeName(),
                 OrderName(spec), static_cast<long long>(round), path.name.c_str(), seconds,
                 processor);
    if (round == 0) return;
    path.seconds.push_back(seconds);
    path.processor.push_back(processor);
  }

  double Processor() const {
    double seconds = ProcessorSeconds(0);
    for (const Place* const place : {memory_.get(), disk_.get()}) {
      if (place == nullptr) continue;
      for (const pid_t pid : place->Processes()) seconds += ProcessorSeconds(pid);
    }
    return seconds;
  }

  static Path Bound(const std::string& name, const Path& engine, const Path& socket) {
    Path bound{.name = name};
    for (size_t i = 0; i < engine.seconds.size(); ++i) {
      bound.seconds.push_back(engine.seconds[i] + socket.seconds[i]);
    }
    return bound;
  }

  void Print(const JobSpec& spec, const Path& path, const Path& engine) const {
    std::vector<std::string> row = {absl::StrCat(spec.tokens), TypeName(), OrderName(spec)};
    if (!path.why_not.empty()) {
      row.push_back(absl::StrCat(path.name, ": not measured, ", path.why_not));
      table_.Print(row);
      return;
    }
    const double best = Best(path.seconds);
    row.push_back(path.name);
    if (path.bytes > 0) {
      row.insert(row.end(), {"", "", "", absl::StrFormat("%.2f", 1e-9 * path.bytes / best)});
    } else {
      std::vector<double> of_engine;
      for (size_t i = 0; i < path.seconds.size(); ++i) {
        of_engine.push_back(engine.seconds[i] / path.seconds[i]);
      }
      row.insert(row.end(), {absl::StrFormat("%.0f", static_cast<double>(spec.tokens) / best),
                             absl::StrFormat("%.0f %%", 100 * Median(of_engine)),
                             absl::StrFormat("%.0f %%", 100 * Best(engine.seconds) / best), ""});
    }
    row.push_back(absl::StrFormat("%.3f", best));
    row.push_back(absl::StrFormat("%.3f", Median(path.seconds)));
    if (!path.processor.empty()) row.push_back(absl::StrFormat("%.2f", Median(path.processor)));
    table_.Print(row);
  }

  const char* TypeName() const { return dtype_ == DataType::kFloat32 ? "float32" : "bfloat16"; }
  static const char* OrderName(const JobSpec& spec) { return spec.ordering ? "on" : "off"; }

  const Options& options_;
  const RowPrinter& table_;
  const DataType dtype_;
  std::unique_ptr<Place> memory_, disk_;
  std::string no_disk_;  // reason
};

void Run(const Options& options) {
  std::printf(
      "\n### Tensors in files: 8 heads of dimension 64, [2048, 4096, 8192] with [1, 2, 4]\n\n"
      "Files in memory: %s; on a disk: %s. Workers of each service: %lld. %lld rounds, in each all "
      "rows but the bounds one after the other. The first job gets fresh pages for its shards if "
      "earlier work outlasted the pages that are kept; the next job does not. Percentages are of "
      "the engine's rate.\n\n",
      options.folder.c_str(), options.disk.c_str(), static_cast<long long>(options.workers),
      static_cast<long long>(options.rounds));
  const RowPrinter table({"tokens", "type", "Hilbert order", "through", "tokens/s",
                          "of the engine alone, median of rounds", "best of best", "GB/s", "best s",
                          "median s", "processor s"});
  for (const std::string& type : options.types) {
    Bench bench(options, table, type == "float32" ? DataType::kFloat32 : DataType::kBFloat16);
    for (const std::string& order : options.orders) bench.Measure(order == "on");
  }
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  // Keeps the transport's buffers, like the command.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  hilbert_ring::bench::Options options;
  bool quick = false;
  CLI::App app("The published job with its tensors in files.");
  app.add_option("--folder", options.folder, "Folder of files in memory")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  app.add_option("--disk", options.disk,
                 "Folder of files whose pages are dropped before a job (none: without these rows)")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory |
              CLI::IsMember(std::vector<std::string>{hilbert_ring::bench::kNoDisk}));
  app.add_option("--type", options.types, "Types: float32, bfloat16 or both")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--order", options.orders, "Hilbert order: off, on or both")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "on"}));
  app.add_option("--tokens", options.tokens)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--workers", options.workers)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_flag("--quick", quick, "Run 16,384 tokens and two rounds");
  CLI11_PARSE(app, argc, argv);
  if (quick) {
    options.tokens = 16'384;
    options.rounds = 2;
  }
  try {
    hilbert_ring::bench::Run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "reference_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
