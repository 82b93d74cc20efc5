// Ten times the load that the service carries, from clients that do not wait after a refusal. The
// service answers each call, or refuses it with a retry-after; each process lives and stays within
// its limit.
//
//   overload --seconds=120 --times=10 --workers=2 --seed=1
//
// The program measures the service's rate first, with a caller for each worker. Then calls begin at
// `times` that rate, without waiting for earlier ones.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"
#include "tests/faults/tally.h"
#include "tests/service/raw_call.h"
#include "tests/support/process_account.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMiB = 1 << 20;
constexpr int64_t kWorkerLimit = int64_t{256} << 20;
// Memory beside jobs: the process itself, and gRPC's buffers of each call that may wait.
constexpr int64_t kWorkerSlack = int64_t{96} << 20;
constexpr int64_t kCoordinatorLimit = int64_t{512} << 20;
constexpr auto kCallLimit = std::chrono::seconds(60);
constexpr int kMaxQueue = 16;
constexpr int kThreads = 128;  // the most calls at once

struct OverloadOptions {
  double seconds = 60;
  double times = 10;
  int workers = 2;
  uint64_t seed = 1;
};

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Thread-safe.
class Outcome {
 public:
  void Count(const absl::Status& status, bool retry_after, int64_t tokens, double seconds) {
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      ++done_;
      tokens_ += tokens;
      done_seconds_.push_back(seconds);
      return;
    }
    if (absl::IsResourceExhausted(status)) {
      ++refused_;
      if (!retry_after) ++without_retry_after_;
      refused_seconds_.push_back(seconds);
      return;
    }
    ++others_[absl::StrCat(absl::StatusCodeToString(status.code()), " ", wire::ReasonOf(status),
                           ": ", std::string(status.message()))];
  }

  int done() const { return done_; }

  // Calls that ended neither right nor with a retry-after.
  int Wrong() const {
    int wrong = without_retry_after_;
    for (const auto& [what, count] : others_) wrong += count;
    return wrong;
  }

  void Print(const char* part, double seconds) const {
    std::printf(
        "| %s | %.1f s | done %d (%.1f jobs/s, %.0f tokens/s) | seconds of a job: median "
        "%.3f, p99 %.3f | refused %d (%d without retry-after) | seconds of a refusal: median "
        "%.4f, p99 %.4f |\n",
        part, seconds, done_, done_ / seconds, static_cast<double>(tokens_) / seconds,
        Percentile(done_seconds_, 0.5), Percentile(done_seconds_, 0.99), refused_,
        without_retry_after_, Percentile(refused_seconds_, 0.5),
        Percentile(refused_seconds_, 0.99));
    for (const auto& [what, count] : others_) std::printf("  %d x %s\n", count, what.c_str());
    std::fflush(stdout);
  }

 private:
  std::mutex mutex_;
  // Guarded by mutex_ while calls are under way:
  int done_ = 0, refused_ = 0, without_retry_after_ = 0;
  int64_t tokens_ = 0;
  std::vector<double> done_seconds_, refused_seconds_;
  std::map<std::string, int> others_;
};

void CallOnce(v1::AttentionService::Stub& stub, const FaultJob& job, Outcome& outcome) {
  const Clock::time_point start = Clock::now();
  RawCall call(stub, kCallLimit);
  int64_t rows = 0;
  if (call.Open(job.spec, false) && call.AwaitAdmitted()) {
    bool open = true;
    const auto send = [&](v1::Tensor tensor, const std::string& data) {
      const int64_t row_bytes = wire::TensorRowBytes(job.spec, tensor);
      const int64_t step = std::max<int64_t>(1, (int64_t{1} << 20) / row_bytes);
      const int64_t tokens = tensor == v1::TENSOR_Q ? job.spec.tokens : KeyTokens(job.spec);
      for (int64_t first = 0; first < tokens && open; first += step) {
        open = call.Send(MakeChunk(tensor, data, row_bytes, first, std::min(step, tokens - first)));
      }
    };
    const auto coordinates = job.tensors.find(v1::TENSOR_BIAS_COORDS);
    if (coordinates != job.tensors.end()) send(coordinates->first, coordinates->second);
    for (const auto& [tensor, data] : job.tensors) {
      if (tensor != v1::TENSOR_BIAS_COORDS) send(tensor, data);
    }
    call.WritesDone();
    v1::AttendResponse response;
    while (call.Read(&response)) {
      if (response.output().tensor() == v1::TENSOR_OUT) rows += response.output().rows();
    }
  }
  absl::Status status = call.Finish();
  if (status.ok() && rows != job.spec.tokens) {
    status = absl::DataLossError(absl::StrCat(rows, " of ", job.spec.tokens, " rows came"));
  }
  outcome.Count(status, call.retry_after_ms().has_value(), job.spec.tokens,
                Seconds(Clock::now() - start));
}

class Driver {
 public:
  Driver(Cluster& cluster, std::vector<FaultJob> jobs)
      : jobs_(std::move(jobs)),
        channel_(Dial(cluster.address())),
        stub_(v1::AttentionService::NewStub(channel_)) {}

  // Returns jobs per second.
  double Uncontended(int callers, double seconds, uint64_t seed) {
    Outcome outcome;
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> threads;
    threads.reserve(callers);
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937_64 random(seed + static_cast<uint64_t>(i));
        while (Seconds(Clock::now() - start) < seconds) CallOnce(*stub_, Draw(random), outcome);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const double passed = Seconds(Clock::now() - start);
    outcome.Print("uncontended", passed);
    wrong_ += outcome.Wrong();
    return outcome.done() / passed;
  }

  double Overloaded(double rate, double seconds, uint64_t seed) {
    Outcome outcome;
    std::atomic<int64_t> next = 0;
    std::atomic<int64_t> late = 0;
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937_64 random(seed + static_cast<uint64_t>(i));
        while (true) {
          const double due = static_cast<double>(next++) / rate;
          if (due > seconds) return;
          const double early = due - Seconds(Clock::now() - start);
          if (early > 0) std::this_thread::sleep_for(std::chrono::duration<double>(early));
          if (early < -1) ++late;
          if (Seconds(Clock::now() - start) > seconds) return;
          CallOnce(*stub_, Draw(random), outcome);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const double passed = Seconds(Clock::now() - start);
    outcome.Print("overloaded", passed);
    std::printf("  offered %.0f calls/s; %lld began more than a second late\n", rate,
                static_cast<long long>(late.load()));
    wrong_ += outcome.Wrong();
    return outcome.done() / passed;
  }

  int wrong() const { return wrong_; }

 private:
  static std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(8 << 20);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  const FaultJob& Draw(std::mt19937_64& random) const {
    const size_t small = jobs_.size() - 1;
    return random() % 10 == 0 ? jobs_.back() : jobs_[random() % small];
  }

  const std::vector<FaultJob> jobs_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AttentionService::Stub> stub_;
  int wrong_ = 0;
};

class PeakWatch {
 public:
  explicit PeakWatch(Cluster& cluster)
      : coordinator_(cluster.coordinator()), workers_(cluster.Workers()) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const ProcessAccount account = AccountOf(coordinator_);
        if (!account.there) ended_ = true;
        // Shards that it shares are the workers' admitted memory.
        coordinator_peak_ = std::max(coordinator_peak_, account.memory.anonymous);
        for (const pid_t pid : workers_) {
          const ProcessAccount worker = AccountOf(pid);
          if (!worker.there || worker.zombie) ended_ = true;
          worker_peak_ = std::max(worker_peak_, worker.memory.resident());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    });
  }

  std::string Stop() {
    thread_ = {};
    std::printf("  most memory: coordinator %.1f MiB, a worker %.1f MiB\n",
                static_cast<double>(coordinator_peak_) / kMiB,
                static_cast<double>(worker_peak_) / kMiB);
    std::string wrong;
    if (ended_) wrong += "a process ended; ";
    if (coordinator_peak_ > kCoordinatorLimit) wrong += "the coordinator outgrew its limit; ";
    if (worker_peak_ > kWorkerLimit + kWorkerSlack) wrong += "a worker outgrew its limit; ";
    return wrong;
  }

 private:
  const pid_t coordinator_;
  const std::vector<pid_t> workers_;
  bool ended_ = false;
  int64_t coordinator_peak_ = 0, worker_peak_ = 0;
  std::jthread thread_;  // last: it uses the members above
};

std::vector<FaultJob> DrawJobs(std::mt19937_64& random, const std::string& address) {
  std::vector<FaultJob> jobs;
  while (jobs.size() < 16) {
    auto job = MakeSmallJob(random);
    if (job.ok() && job->coords.empty()) jobs.push_back(*std::move(job));
  }
  while (jobs.size() < 17) {
    auto job = MakeWideJob(random, address);
    if (!job.ok()) return {};
    jobs.push_back(*std::move(job));
  }
  return jobs;
}

int Overload(const OverloadOptions& options) {
  auto started = StartFaultCluster(
      {.workers = options.workers,
       .arguments = {absl::StrCat("--memory-limit=", kWorkerLimit),
                     absl::StrCat("--max-queue=", kMaxQueue), "--log-level=off"}});
  if (!started.ok()) {
    std::printf("%s\n", started.status().ToString().c_str());
    return 1;
  }
  Cluster& cluster = **started;
  std::mt19937_64 random(options.seed);
  std::vector<FaultJob> jobs = DrawJobs(random, cluster.address());
  if (jobs.empty()) {
    std::printf("no jobs\n");
    return 1;
  }
  Driver driver(cluster, std::move(jobs));
  const double alone =
      driver.Uncontended(options.workers, std::max(3.0, options.seconds / 6), options.seed);
  PeakWatch watch(cluster);
  const double crowded = driver.Overloaded(options.times * alone, options.seconds, options.seed);
  std::string wrong = watch.Stop();
  std::printf("  throughput %.0f %% of the uncontended\n", 100 * crowded / alone);
  if (driver.wrong() > 0) absl::StrAppend(&wrong, driver.wrong(), " calls ended wrongly; ");
  if (crowded < 0.3 * alone) absl::StrAppend(&wrong, "throughput collapsed; ");
  const Clock::time_point start = Clock::now();
  int tries = 0;
  absl::StrAppend(&wrong, RunNextJob(cluster.address(), random, absl::Seconds(20), tries));
  std::printf("  the next job took %.2f s\n", Seconds(Clock::now() - start));
  const absl::Status stopped = cluster.Stop();
  if (!stopped.ok()) absl::StrAppend(&wrong, stopped.ToString());
  if (!wrong.empty()) {
    std::printf("FAILED: %s\n", wrong.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace hilbert_ring::testing

int main(int argc, char** argv) {
  hilbert_ring::testing::OverloadOptions options;
  CLI::App app("Calls the service more often than it can answer.", "overload");
  app.add_option("--seconds", options.seconds, "how long")->check(CLI::Range(1.0, 1e6));
  app.add_option("--times", options.times, "the load that it can carry");
  app.add_option("--workers", options.workers)->check(CLI::Range(1, 64));
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  return hilbert_ring::testing::Overload(options);
}
