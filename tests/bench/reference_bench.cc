// The published job with its tensors in files, as the service's workers read and write them, beside
// the engine alone and the same job with its tensors sent: the three alternate in one run. Markdown
// tables, which ./dev bench records.
//
//   reference_bench                      425,984 tokens, both types, without and with an order
//   reference_bench --quick              16,384 tokens, two rounds
//   reference_bench --folder=/srv        where the files lie; else /dev/shm
//   reference_bench --cold               their pages are dropped before each job (not of /dev/shm)
#include <fcntl.h>
#include <malloc.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/attend.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/npy.h"
#include "client/cpp/service.h"
#include "engine/order/permutation.h"
#include "engine/run/executor.h"
#include "engine/spec/numbers.h"
#include "tests/bench/or_fail.h"
#include "tests/bench/published_job.h"
#include "tests/bench/row_printer.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::bench {
namespace {

using Clock = std::chrono::steady_clock;
using testing::Cluster;

struct Options {
  std::string folder = "/dev/shm";
  int64_t tokens = 425'984;
  int64_t rounds = 5;
  int64_t workers = 1;
  bool cold = false;
};

double ProcessorSeconds(pid_t pid) {
  clockid_t clock = {};
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A data root, removed with the object.
class Files {
 public:
  explicit Files(const Options& options)
      : folder_(std::filesystem::path(options.folder) / absl::StrCat("reference_bench.", getpid())),
        cold_(options.cold) {
    std::filesystem::create_directories(folder_);
    struct statfs system = {};
    constexpr auto kTmpfs = 0x01021994;
    if (cold_ && statfs(folder_.c_str(), &system) == 0 && system.f_type == kTmpfs) {
      throw std::runtime_error("--cold: " + options.folder + " lies in memory: --folder=");
    }
  }
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string root() const { return folder_.string(); }
  std::string Path(const std::string& name) const { return folder_ / (name + ".npy"); }

  // q, k and v of random numbers.
  void Write(const JobSpec& spec) const {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::byte> some(static_cast<size_t>(kElements * ElementBytes(spec.dtype)));
    const std::vector<int64_t> shape = {spec.tokens, spec.heads, spec.head_dim};
    const wire::NpyType type =
        spec.dtype == DataType::kFloat32 ? wire::NpyType::kFloat32 : wire::NpyType::kRaw16;
    for (const char* name : {"q", "k", "v"}) {
      auto file = OrFail(client::NpyWriter::Create(Path(name), type, shape));
      const std::span<std::byte> data = file.data();
      for (int64_t i = 0; i < kElements; ++i) {
        StoreElement(spec.dtype, some.data(), i, normal(random));
      }
      for (size_t at = 0; at < data.size(); at += some.size()) {
        std::memcpy(data.data() + at, some.data(), std::min(some.size(), data.size() - at));
      }
      OrFail(file.Sync());
      OrFail(file.Commit());
    }
  }

  void DropPages() const {
    if (!cold_) return;
    for (const char* name : {"q", "k", "v"}) {
      const int file = open(Path(name).c_str(), O_RDONLY | O_CLOEXEC);
      if (file < 0 || fdatasync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        throw std::runtime_error("cannot drop the pages of " + Path(name));
      }
      close(file);
    }
  }

 private:
  static constexpr int64_t kElements = 977 * 512;  // rows repeat, but not soon
  const std::filesystem::path folder_;
  const bool cold_;
};

// Execute, whose rows are at their places.
class EngineJob {
 public:
  EngineJob(const JobSpec& spec, const Files& files)
      : device_(OrFail(MakeDevice({}))),
        plan_(OrFail(MakePlan(spec, 1))),
        store_(OrFail(ShardStore::Make(*device_, plan_, 0))) {
    std::vector<int64_t> tokens(static_cast<size_t>(spec.tokens));
    std::iota(tokens.begin(), tokens.end(), 0);
    if (spec.ordering) {
      OrFail(Permutation::Make(spec, {}))->Tokens(0, tokens);
      std::ranges::copy(tokens, store_->tokens().begin());
    }
    for (const auto& [kind, name] :
         {std::pair{TensorKind::kQ, "q"}, {TensorKind::kK, "k"}, {TensorKind::kV, "v"}}) {
      const auto file = OrFail(client::NpyFile::Open(files.Path(name)));
      const int64_t bytes = RowBytes(spec, kind);
      for (int64_t slot = 0; slot < spec.tokens; ++slot) {
        std::memcpy(store_->Row(kind, slot), file.data() + tokens[slot] * bytes,
                    static_cast<size_t>(bytes));
      }
    }
  }

  void Run() { OrFail(Execute(plan_, 0, *store_, *device_, nullptr, 1, {})); }

 private:
  std::unique_ptr<Device> device_;
  Plan plan_;
  std::unique_ptr<ShardStore> store_;
};

std::unique_ptr<Cluster> StartService(const Files& files, int workers) {
  auto cluster =
      OrFail(Cluster::Start({.workers = workers, .arguments = {"--data-root=" + files.root()}}));
  const auto end = Clock::now() + std::chrono::seconds(60);
  while (OrFail(client::RequestDataRoot(cluster->Channel())).workers() < workers) {
    if (Clock::now() > end) throw std::runtime_error("the workers do not see the data root");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return cluster;
}

void RunByReference(const JobSpec& spec, const Files& files, const Cluster& cluster) {
  const auto named =
      OrFail(client::NameFiles(cluster.Channel(), {{v1::TENSOR_Q, files.Path("q")},
                                                   {v1::TENSOR_K, files.Path("k")},
                                                   {v1::TENSOR_V, files.Path("v")},
                                                   {v1::TENSOR_OUT, files.Path("out")}}));
  OrFail(client::AttendInFiles(cluster.address(), spec, named));
}

// As the command does where the service does not see the files.
void RunSent(const JobSpec& spec, const Files& files, const Cluster& cluster) {
  const auto q = OrFail(client::NpyFile::Open(files.Path("q")));
  const auto k = OrFail(client::NpyFile::Open(files.Path("k")));
  const auto v = OrFail(client::NpyFile::Open(files.Path("v")));
  const std::vector<int64_t> shape = {spec.tokens, spec.heads, spec.value_dim};
  auto out = OrFail(client::NpyWriter::Create(files.Path("out"), q.type(), shape));
  OrFail(client::Attend(cluster.address(),
                        {.spec = spec, .q = q.span(), .k = k.span(), .v = v.span()},
                        {.out = out.data()}));
  OrFail(out.Sync());
  OrFail(out.Commit());
}

struct Measured {
  std::vector<double> seconds, processor, of_engine;  // by round
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void Measure(const JobSpec& spec, const Options& options, const RowPrinter& table) {
  const Files files(options);
  files.Write(spec);
  EngineJob engine(spec, files);
  const auto cluster = StartService(files, static_cast<int>(options.workers));
  const std::string workers =
      absl::StrCat(options.workers, options.workers == 1 ? " worker" : " workers");
  const std::vector<std::pair<std::string, std::function<void()>>> paths = {
      {"engine", [&] { engine.Run(); }},
      {"files, " + workers, [&] { RunByReference(spec, files, *cluster); }},
      {"files, the job that follows", [&] { RunByReference(spec, files, *cluster); }},
      {"sent, the job that follows", [&] { RunSent(spec, files, *cluster); }}};
  const auto processor = [&] {
    double seconds = ProcessorSeconds(0);
    for (const pid_t pid : cluster->Processes()) seconds += ProcessorSeconds(pid);
    return seconds;
  };
  std::map<std::string, Measured> measured;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first is for warmth
    double of_engine = 0;
    for (const auto& [path, run] : paths) {
      files.DropPages();
      const double begun = processor();
      const Clock::time_point start = Clock::now();
      run();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (path == "engine") of_engine = seconds;
      if (round == 0) continue;
      Measured& of_path = measured[path];
      of_path.seconds.push_back(seconds);
      of_path.processor.push_back(processor() - begun);
      of_path.of_engine.push_back(of_engine / seconds);
    }
  }
  for (const auto& [path, run] : paths) {
    const Measured& of_path = measured[path];
    const double best = std::ranges::min(of_path.seconds);
    table.Print(
        {absl::StrCat(spec.tokens), spec.dtype == DataType::kFloat32 ? "float32" : "bfloat16",
         spec.ordering ? "on" : "off", path,
         absl::StrFormat("%.0f", static_cast<double>(spec.tokens) / best),
         absl::StrFormat("%.0f %%", 100 * Median(of_path.of_engine)),
         absl::StrFormat("%.0f %%", 100 * std::ranges::min(measured["engine"].seconds) / best),
         absl::StrFormat("%.3f", best), absl::StrFormat("%.3f", Median(of_path.seconds)),
         absl::StrFormat("%.2f", Median(of_path.processor))});
  }
}

void Run(const Options& options) {
  std::printf(
      "\n### Tensors in files: 8 heads of dimension 64, [2048, 4096, 8192] with [1, 2, 4]\n\n"
      "Files in %s, pages %s; %lld rounds, in each the engine alone, by reference twice and sent, "
      "one after the other. The first job gets fresh pages for its shards where the engine takes "
      "longer than these are kept (--keep-shards); those that follow at once do not.\n\n",
      options.folder.c_str(), options.cold ? "dropped before each job" : "in memory",
      static_cast<long long>(options.rounds));
  const RowPrinter table({"tokens", "type", "Hilbert order", "through", "tokens/s",
                          "of the engine alone, median of rounds", "best of best", "best s",
                          "median s", "processor s"});
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const bool hilbert : {false, true}) {
      Measure(PublishedJob(options.tokens, dtype, hilbert), options, table);
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  // As the command does: buffers of the transport are kept, not taken from the system each time.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  hilbert_ring::bench::Options options;
  bool quick = false;
  CLI::App app("The published job with its tensors in files.");
  app.add_option("--folder", options.folder, "where the files lie")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  app.add_option("--tokens", options.tokens)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--workers", options.workers)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_flag("--cold", options.cold, "pages of the files are dropped before each job");
  app.add_flag("--quick", quick, "16,384 tokens, two rounds");
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
