// Small jobs through the real service: rate, latency and CPU time, as a Markdown table, which ./dev
// bench records. Blocks of services and numbers of callers are interleaved, because a shared
// machine drifts.
//
//   small_jobs_bench                                   1 and 16 callers, 64 tokens
//   small_jobs_bench --against OLD/hilbert-ring-coordinator --callers 1,16,64 --tokens 64,2048
//   small_jobs_bench --in-a-call 16,64                 also this many jobs in each call of a caller
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cpp/attend.h"
#include "client/cpp/attend_many.h"
#include "client/cpp/service.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> coordinators = {""};  // empty: this build
  std::vector<int> callers = {1, 16};
  std::vector<int64_t> tokens = {64};
  std::vector<int> in_a_call;  // jobs per call
  int workers = 2;
  int blocks = 10;
  int jobs = 300;  // per block
};

// A caller's first and last jobs in a block run beside fewer others. With 9 jobs a caller, 64
// callers seemed 2 to 14 % slower than 16; with 60, 2 % slower to 6 % faster (2 cores of an AMD
// EPYC).
constexpr int kLeastJobsOfACaller = 50;

struct Processor {
  double user = 0, system = 0;  // seconds
};

Processor operator-(const Processor& a, const Processor& b) {
  return {a.user - b.user, a.system - b.system};
}

void Add(Processor& sum, const Processor& more) {
  sum.user += more.user;
  sum.system += more.system;
}

Processor ProcessorOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  // The name may hold spaces and ends with the last parenthesis.
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(std::min(line.size(), line.rfind(')') + 2)), ' ');
  constexpr size_t kUser = 11, kSystem = 12;
  Processor processor;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (fields.size() <= kSystem || !absl::SimpleAtod(fields[kUser], &processor.user) ||
      !absl::SimpleAtod(fields[kSystem], &processor.system)) {
    return {};
  }
  return {processor.user / ticks, processor.system / ticks};
}

struct Usage {
  Processor coordinator, workers, client;
};

Usage UsageOf(const Cluster& cluster) {
  Usage usage{.coordinator = ProcessorOf(cluster.coordinator()), .client = ProcessorOf(getpid())};
  for (const pid_t worker : cluster.Workers()) Add(usage.workers, ProcessorOf(worker));
  return usage;
}

void AddSince(const Usage& before, const Cluster& cluster, Usage& sum) {
  const Usage after = UsageOf(cluster);
  Add(sum.coordinator, after.coordinator - before.coordinator);
  Add(sum.workers, after.workers - before.workers);
  Add(sum.client, after.client - before.client);
}

class Job {
 public:
  explicit Job(int64_t tokens) : spec_(PlainSpec({.tokens = tokens, .heads = 4, .dim = 32})) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (std::vector<float>* tensor : {&q_, &k_, &v_}) {
      tensor->resize(tokens * spec_.heads * spec_.head_dim);
      for (float& value : *tensor) value = normal(random);
    }
    out_.resize(q_.size());
  }

  absl::Status Run(const std::shared_ptr<grpc::Channel>& channel) {
    const client::SmallJob job = small();
    return client::Attend(channel, job.inputs, job.outputs, {.max_attempts = 1}).status();
  }

  client::SmallJob small() {
    return {.inputs = {.spec = spec_,
                       .q = std::as_bytes(std::span(q_)),
                       .k = std::as_bytes(std::span(k_)),
                       .v = std::as_bytes(std::span(v_))},
            .outputs = {.out = std::as_writable_bytes(std::span(out_))}};
  }

 private:
  const JobSpec spec_;
  std::vector<float> q_, k_, v_, out_;
};

struct Tally {
  double seconds = 0;
  std::vector<double> milliseconds;
  Usage usage;
};

struct Service {
  std::string name;
  std::unique_ptr<Cluster> cluster;
  std::shared_ptr<grpc::Channel> channel;
};

absl::Status RunBlock(Service& service, int callers, int jobs, int64_t tokens, Tally& tally) {
  std::vector<std::vector<double>> milliseconds(callers);
  std::vector<absl::Status> ends(callers);
  std::vector<Job> rows(callers, Job(tokens));
  const Usage before = UsageOf(*service.cluster);
  const Clock::time_point start = Clock::now();
  const auto call = [&](int caller) {
    const int share = (jobs + caller) / callers;
    for (int i = 0; i < share && ends[caller].ok(); ++i) {
      const Clock::time_point began = Clock::now();
      ends[caller] = rows[caller].Run(service.channel);
      const std::chrono::duration<double, std::milli> took = Clock::now() - began;
      milliseconds[caller].push_back(took.count());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int caller = 1; caller < callers; ++caller) threads.emplace_back(call, caller);
    call(0);
  }
  tally.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  AddSince(before, *service.cluster, tally.usage);
  for (int caller = 0; caller < callers; ++caller) {
    if (!ends[caller].ok()) return ends[caller];
    tally.milliseconds.insert(tally.milliseconds.end(), milliseconds[caller].begin(),
                              milliseconds[caller].end());
  }
  return absl::OkStatus();
}

// A caller sends `in_a_call` jobs in each call. Milliseconds are a call's.
absl::Status RunCalls(Service& service, int in_a_call, int jobs, int64_t tokens, Tally& tally) {
  std::vector<Job> rows(in_a_call, Job(tokens));
  std::vector<client::SmallJob> small;
  small.reserve(rows.size());
  for (Job& job : rows) small.push_back(job.small());
  const Usage before = UsageOf(*service.cluster);
  for (int done = 0; done < jobs; done += in_a_call) {
    const Clock::time_point began = Clock::now();
    for (const auto& report : client::AttendMany(service.channel, small, {.max_attempts = 1})) {
      if (!report.ok()) return report.status();
    }
    const std::chrono::duration<double, std::milli> took = Clock::now() - began;
    tally.seconds += took.count() / 1e3;
    tally.milliseconds.push_back(took.count());
  }
  AddSince(before, *service.cluster, tally.usage);
  return absl::OkStatus();
}

void Print(const Service& service, int callers, int in_a_call, int64_t tokens, Tally& tally) {
  std::vector<double>& times = tally.milliseconds;
  std::sort(times.begin(), times.end());
  const auto jobs = static_cast<double>(times.size()) * in_a_call;
  const auto part = [&](double of) {
    return times[static_cast<size_t>(of * static_cast<double>(times.size() - 1))];
  };
  const auto each = [jobs](double seconds) { return 1e3 * seconds / jobs; };
  const Usage& usage = tally.usage;
  std::printf(
      "| %s | %lld | %d | %d | %.0f | %.2f | %.2f | %.2f | %.2f + %.2f | %.2f + %.2f | %.2f |\n",
      service.name.c_str(), static_cast<long long>(tokens), callers, in_a_call,
      jobs / tally.seconds, part(0.5), part(0.9), part(0.99), each(usage.coordinator.user),
      each(usage.coordinator.system), each(usage.workers.user), each(usage.workers.system),
      each(usage.client.user + usage.client.system));
  std::fflush(stdout);
}

// Interleaves loads and services by blocks, so that a slow minute slows all of them.
absl::Status RunInterleaved(std::vector<Service>& services, const Options& options,
                            int64_t tokens) {
  std::vector<std::vector<Tally>> tallies(options.callers.size(),
                                          std::vector<Tally>(services.size()));
  for (int block = 0; block <= options.blocks; ++block) {
    for (size_t load = 0; load < options.callers.size(); ++load) {
      const int callers = options.callers[load];
      const int jobs = std::max(options.jobs, kLeastJobsOfACaller * callers);
      for (size_t i = 0; i < services.size(); ++i) {
        Tally warm_up;
        const bool counts = block > 0;
        absl::Status status = RunBlock(services[i], callers, counts ? jobs : jobs / 3, tokens,
                                       counts ? tallies[load][i] : warm_up);
        if (!status.ok()) return status;
      }
    }
  }
  for (size_t load = 0; load < options.callers.size(); ++load) {
    for (size_t i = 0; i < services.size(); ++i) {
      Print(services[i], options.callers[load], 1, tokens, tallies[load][i]);
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  std::vector<Service> services;
  for (const std::string& coordinator : options.coordinators) {
    Service& service = services.emplace_back();
    service.name = coordinator.empty() ? "this build" : "the other";
    auto cluster = Cluster::Start({.workers = options.workers,
                                   .spread = false,
                                   .log_files = true,
                                   .coordinator = coordinator});
    if (!cluster.ok()) return cluster.status();
    service.cluster = *std::move(cluster);
    service.channel = client::Connect(service.cluster->address());
  }
  std::printf(
      "\n### Small jobs: 4 heads of dimension 32, float32, %d workers\n\n"
      "| service | tokens | callers | jobs in a call | jobs/s | p50 ms | p90 | p99 | coordinator, "
      "ms of processor a "
      "job: user + system | workers | client |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
      options.workers);
  for (const int64_t tokens : options.tokens) {
    absl::Status status = RunInterleaved(services, options, tokens);
    if (!status.ok()) return status;
    for (const int in_a_call : options.in_a_call) {
      Tally warm_up, tally;
      for (auto [jobs, into] : {std::pair(options.jobs / 3, &warm_up),
                                std::pair(options.jobs * options.blocks, &tally)}) {
        absl::Status status = RunCalls(services[0], in_a_call, jobs, tokens, *into);
        if (!status.ok()) return status;
      }
      Print(services[0], 1, in_a_call, tokens, tally);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hilbert_ring::testing

int main(int argc, char** argv) {
  // Keeps the transport's buffers, like the command.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  hilbert_ring::testing::Options options;
  CLI::App app("Rate, latency and CPU time of small jobs; services are interleaved.");
  std::vector<std::string> others;
  app.add_option("--against", others, "Other coordinator programs")->check(CLI::ExistingFile);
  app.add_option("--callers", options.callers)->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--tokens", options.tokens)->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--in-a-call", options.in_a_call, "Jobs per call, by this build's service")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--workers", options.workers)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--jobs", options.jobs, "Jobs per block, at least 50 for each caller")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  options.coordinators.insert(options.coordinators.end(), others.begin(), others.end());
  const absl::Status status = hilbert_ring::testing::Run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
