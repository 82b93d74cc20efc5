// The published configuration of the Hilbert ring reports, through the engine alone and through the
// service, as Markdown tables, which ./dev bench records; and the latency of a small job.
//
//   reports_bench                        everything
//   reports_bench jobs 425984            one length (several may be given)
//   reports_bench exchange               segments that span both workers
//   reports_bench service 131072         one job, float32, one worker: to be profiled
//   reports_bench latency
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/published_job.h"
#include "client/cpp/attend.h"
#include "client/cpp/service.h"
#include "engine/order/permutation.h"
#include "engine/run/executor.h"
#include "engine/spec/numbers.h"
#include "tests/service/memory_watch.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMiB = 1 << 20;
constexpr int64_t kTokens[] = {8192, 16384, 32768, 425984, 1048576};
constexpr double kReportsTokensPerSecond = 15728;  // one GTX 1080, 425,984 tokens, 4.2 GB

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The best of so many runs counts: the machines are noisy.
int Rounds(const JobSpec& spec) { return spec.tokens > 500'000 ? 1 : 3; }

// Q, K, V and out, as bytes of the job's type.
struct JobData {
  explicit JobData(const JobSpec& spec) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> some(1 << 16);
    for (float& value : some) value = normal(random);
    for (std::vector<std::byte>* tensor : {&q, &k, &v}) {
      const int64_t elements = spec.tokens * spec.heads * spec.head_dim;
      tensor->resize(elements * ElementBytes(spec.dtype));
      // An odd shift, so that rows differ.
      int64_t at = static_cast<int64_t>(random() % some.size());
      for (int64_t i = 0; i < elements; ++i) {
        if (++at == static_cast<int64_t>(some.size())) at = static_cast<int64_t>(random() % 977);
        StoreElement(spec.dtype, tensor->data(), i, some[at]);
      }
    }
    out.resize(q.size());
  }
  std::vector<std::byte> q, k, v, out;
};

// Of this process, or of a live one; 0 when that cannot be known.
double ProcessorSeconds(pid_t pid = 0) {
  clockid_t clock = {};
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double ProcessorSeconds(const Cluster& cluster) {
  double seconds = ProcessorSeconds(cluster.coordinator());
  for (const pid_t worker : cluster.Workers()) seconds += ProcessorSeconds(worker);
  return seconds;
}

struct Measured {
  double seconds = 0;
  double processor = 0;  // seconds of all processes, the client's included
  double compute = 0;    // of the busiest worker
  double exposed = 0;    // exchange, likewise
  double memory = 0;     // bytes of a worker, at most
  double exchanged = 0;
};

absl::StatusOr<Measured> RunEngine(const JobSpec& spec, const JobData& data) {
  auto device = MakeDevice({});
  if (!device.ok()) return device.status();
  auto plan = MakePlan(spec, 1);
  if (!plan.ok()) return plan.status();
  auto store = ShardStore::Make(**device, *plan, 0);
  if (!store.ok()) return store.status();
  std::vector<int64_t> tokens(spec.tokens);
  for (int64_t i = 0; i < spec.tokens; ++i) tokens[i] = i;
  if (spec.ordering) {
    auto order = Permutation::Make(spec, {});
    if (!order.ok()) return order.status();
    (*order)->Tokens(0, tokens);
    std::copy(tokens.begin(), tokens.end(), (*store)->tokens().begin());
  }
  for (const auto& [kind, bytes] :
       {std::pair{TensorKind::kQ, &data.q}, std::pair{TensorKind::kK, &data.k},
        std::pair{TensorKind::kV, &data.v}}) {
    const int64_t row_bytes = RowBytes(spec, kind);
    for (int64_t slot = 0; slot < spec.tokens; ++slot) {
      std::memcpy((*store)->Row(kind, slot), bytes->data() + tokens[slot] * row_bytes, row_bytes);
    }
  }
  Measured best{.seconds = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < Rounds(spec); ++i) {
    const double processor = ProcessorSeconds();
    const Clock::time_point start = Clock::now();
    const auto figures = Execute(*plan, 0, **store, **device, nullptr, 1, {});
    const double seconds = SecondsSince(start);
    if (!figures.ok()) return figures.status();
    if (seconds > best.seconds) continue;
    best = {.seconds = seconds,
            .processor = ProcessorSeconds() - processor,
            .compute = figures->compute_seconds,
            .memory = static_cast<double>(figures->memory_peak_bytes)};
  }
  return best;
}

// The best of some jobs, one after the other, through one service.
absl::StatusOr<Measured> RunService(const JobSpec& spec, JobData& data, int workers) {
  auto cluster = Cluster::Start({.workers = workers});
  if (!cluster.ok()) return cluster.status();
  MemoryWatch watch(**cluster);
  const auto channel = client::Connect((*cluster)->address());
  const client::AttendInputs inputs{.spec = spec, .q = data.q, .k = data.k, .v = data.v};
  Measured best{.seconds = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < Rounds(spec); ++i) {
    const double processor = ProcessorSeconds() + ProcessorSeconds(**cluster);
    const Clock::time_point start = Clock::now();
    const auto report = client::Attend(channel, inputs, {.out = data.out});
    const double seconds = SecondsSince(start);
    if (!report.ok()) return report.status();
    if (seconds > best.seconds) continue;
    best = {.seconds = seconds,
            .processor = ProcessorSeconds() + ProcessorSeconds(**cluster) - processor,
            .exchanged = static_cast<double>(report->bytes_exchanged())};
    for (const v1::WorkerReport& worker : report->workers()) {
      best.compute = std::max(best.compute, worker.compute_seconds());
      best.exposed = std::max(best.exposed, worker.exposed_exchange_seconds());
    }
  }
  watch.Stop();
  for (const int64_t peak : watch.WorkerPeaks()) {
    best.memory = std::max(best.memory, static_cast<double>(peak));
  }
  return best;
}

void Print(const JobSpec& spec, const std::string& path, const absl::StatusOr<Measured>& measured,
           double engine_seconds) {
  if (!measured.ok()) {
    std::printf("%s: %s\n", path.c_str(), measured.status().ToString().c_str());
    return;
  }
  const double rate = static_cast<double>(spec.tokens) / measured->seconds;
  std::printf(
      "| %lld | %s | %s | %s | %.0f | %.2f | %.0f %% | %.3f | %.2f | %.3f | %.0f | %.1f | %.4f |\n",
      static_cast<long long>(spec.tokens),
      spec.dtype == DataType::kFloat32 ? "float32" : "bfloat16", spec.ordering ? "on" : "off",
      path.c_str(), rate, rate / kReportsTokensPerSecond, 100 * engine_seconds / measured->seconds,
      measured->seconds, measured->processor, measured->compute, measured->memory / kMiB,
      measured->exchanged / 1e6, measured->exposed);
  std::fflush(stdout);
}

void Jobs(std::span<const int64_t> lengths) {
  std::printf(
      "\n### 8 heads of dimension 64, [2048, 4096, 8192] with [1, 2, 4]\n\n"
      "| tokens | type | Hilbert order | through | tokens/s | over the reports' 15,728 | of the "
      "engine alone | seconds | processor s | compute s | worker MiB | exchanged MB | exposed "
      "exchange s |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const int64_t tokens : lengths) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      JobData data(PublishedJob(tokens, dtype, false));
      for (const bool hilbert : {false, true}) {
        const JobSpec spec = PublishedJob(tokens, dtype, hilbert);
        const auto engine = RunEngine(spec, data);
        const double seconds = engine.ok() ? engine->seconds : 0;
        Print(spec, "engine", engine, seconds);
        for (const int workers : {1, 2}) {
          const std::string path =
              absl::StrCat("service, ", workers, workers == 1 ? " worker" : " workers");
          Print(spec, path, RunService(spec, data, workers), seconds);
        }
      }
    }
  }
}

// Two workers against one, where the longest segments lie on both: what waiting for blocks costs.
void Exchange() {
  std::printf(
      "\n### Segments on two workers: 8 heads of dimension 64, 131,072 tokens\n\n"
      "| pattern | type | workers | seconds | exchanged MB | exposed exchange s | of the job |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n");
  for (const auto& [name, branches] :
       {std::pair{"[2048, 16384, 131072] with [1, 8, 64]",
                  std::vector<Branch>{{2048, 1}, {16384, 8}, {131072, 64}}},
        std::pair{"[131072] with [16]", std::vector<Branch>{{131072, 16}}}}) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      JobSpec spec = PublishedJob(131072, dtype, false);
      spec.branches = branches;
      JobData data(spec);
      for (const int workers : {1, 2}) {
        const auto measured = RunService(spec, data, workers);
        if (!measured.ok()) {
          std::printf("%s\n", measured.status().ToString().c_str());
          return;
        }
        std::printf("| %s | %s | %d | %.3f | %.1f | %.4f | %.1f %% |\n", name,
                    dtype == DataType::kFloat32 ? "float32" : "bfloat16", workers,
                    measured->seconds, measured->exchanged / 1e6, measured->exposed,
                    100 * measured->exposed / measured->seconds);
        std::fflush(stdout);
      }
    }
  }
}

void ServiceAlone(std::span<const int64_t> lengths) {
  for (const int64_t tokens : lengths) {
    const JobSpec spec = PublishedJob(tokens, DataType::kFloat32, false);
    JobData data(spec);
    Print(spec, "service, 1 worker", RunService(spec, data, 1), 0);
  }
}

// One job after the other over one channel.
void Latency() {
  std::printf(
      "\n### Latency of a job of 64 tokens, 8 heads of dimension 64, float32\n\n"
      "| workers | jobs | median ms | 90 %% ms | 99 %% ms |\n| --- | --- | --- | --- | --- |\n");
  constexpr int kJobs = 300;
  constexpr int kWarmUp = 20;
  JobSpec spec = PublishedJob(64, DataType::kFloat32, false);
  spec.branches = {{64, 1}};
  JobData data(spec);
  for (const int workers : {1, 2}) {
    auto cluster = Cluster::Start({.workers = workers});
    if (!cluster.ok()) {
      std::printf("%s\n", cluster.status().ToString().c_str());
      return;
    }
    const auto channel = client::Connect((*cluster)->address());
    const client::AttendInputs inputs{.spec = spec, .q = data.q, .k = data.k, .v = data.v};
    std::vector<double> milliseconds;
    for (int i = 0; i < kWarmUp + kJobs; ++i) {
      const Clock::time_point start = Clock::now();
      const auto report = client::Attend(channel, inputs, {.out = data.out});
      if (!report.ok()) {
        std::printf("%s\n", report.status().ToString().c_str());
        return;
      }
      if (i >= kWarmUp) milliseconds.push_back(1e3 * SecondsSince(start));
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    std::printf("| %d | %d | %.2f | %.2f | %.2f |\n", workers, kJobs, milliseconds[kJobs / 2],
                milliseconds[kJobs * 9 / 10], milliseconds[kJobs * 99 / 100]);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

int main(int argc, char** argv) {
  using namespace hilbert_ring::testing;
  // As the command does: buffers of the transport are kept, not taken from the system each time.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  const std::string part = argc > 1 ? argv[1] : "";
  std::vector<int64_t> lengths;
  for (int i = 2; i < argc; ++i) {
    int64_t tokens = 0;
    if (!absl::SimpleAtoi(argv[i], &tokens) || tokens < 1) {
      std::fprintf(stderr, "tokens: '%s' is no number above 0\n", argv[i]);
      return 2;
    }
    lengths.push_back(tokens);
  }
  if (lengths.empty()) lengths.assign(std::begin(kTokens), std::end(kTokens));
  if (part.empty() || part == "latency") Latency();
  if (part.empty() || part == "exchange") Exchange();
  if (part.empty() || part == "jobs") Jobs(lengths);
  if (part == "service") ServiceAlone(lengths);
  return 0;
}
