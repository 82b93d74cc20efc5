// Jobs of all kinds and sizes, some of them cancelled, from several callers at once. Fails if a
// result is wrong, a call ends in an unexpected error, or a process grows.
//
//   soak --seconds=1800 --workers=2 --callers=4 --remote=false --seed=1
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"
#include "tests/faults/tally.h"
#include "tests/support/process_account.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Shards of jobs that ended well are kept for half a second.
constexpr auto kSettle = std::chrono::milliseconds(1200);
constexpr int kKeptJobs = 4;
constexpr absl::Duration kJobDeadline = absl::Seconds(120);

struct SoakOptions {
  double seconds = 60;
  int workers = 2;
  int callers = 4;
  bool remote = false;
  uint64_t seed = 1;
};

constexpr double kMiB = 1 << 20;
constexpr double kMostGrowth = 0.02;
constexpr double kMostBytes = 8 * kMiB;
// gRPC's threads and connections come and go with the recent load.
constexpr int kMostDescriptors = 6, kMostThreads = 6;
constexpr size_t kCompared = 5;  // samples; their median counts

class Growth {
 public:
  explicit Growth(Cluster& cluster);

  // An ended process is a failure.
  void Sample(double seconds);

  void Print() const;

  // Returns each growth from the samples after `first_part` seconds to the last ones by more than 2
  // % or 8 MiB, whichever is more, or by more descriptors or threads than load explains.
  std::string Failures(double first_part) const;

 private:
  struct Point {
    double seconds = 0;
    ProcessAccount account;
  };
  struct Process {
    std::string name;
    pid_t pid = 0;
    std::vector<Point> points;
  };
  struct Change {
    double begin = 0, end = 0;  // resident bytes
    int descriptors = 0, threads = 0;
  };
  static Change ChangeOf(const Process& process, double first_part);

  std::vector<Process> processes_;
  std::string gone_;
};

Growth::Growth(Cluster& cluster) {
  processes_.push_back({.name = "coordinator", .pid = cluster.coordinator()});
  int number = 0;
  for (const pid_t pid : cluster.Workers()) {
    processes_.push_back({.name = absl::StrCat("worker ", number++), .pid = pid});
  }
}

void Growth::Sample(double seconds) {
  for (Process& process : processes_) {
    const ProcessAccount account = AccountOf(process.pid);
    if (!account.there || account.zombie) {
      gone_ = absl::StrCat(process.name, " ended after ", seconds, " s; ");
      continue;
    }
    process.points.push_back({.seconds = seconds, .account = account});
  }
}

void Growth::Print() const {
  std::printf("\n| seconds |");
  for (const Process& process : processes_) {
    std::printf(" %s MiB | descriptors | threads |", process.name.c_str());
  }
  std::printf("\n| --- |");
  for (size_t i = 0; i < processes_.size(); ++i) std::printf(" --- | --- | --- |");
  for (size_t row = 0; row < processes_.front().points.size(); ++row) {
    std::printf("\n| %.0f |", processes_.front().points[row].seconds);
    for (const Process& process : processes_) {
      if (row >= process.points.size()) continue;
      const ProcessAccount& account = process.points[row].account;
      std::printf(" %.1f | %d | %d |", static_cast<double>(account.memory.resident()) / kMiB,
                  account.descriptors, account.threads);
    }
  }
  std::printf("\n\n");
  std::fflush(stdout);
}

Growth::Change Growth::ChangeOf(const Process& process, double first_part) {
  std::vector<Point> late;
  for (const Point& point : process.points) {
    if (point.seconds >= first_part) late.push_back(point);
  }
  if (late.empty()) return {};
  const size_t compared = std::min(kCompared, (late.size() + 1) / 2);
  const auto median = [&](size_t from, auto figure) {
    std::vector<double> values;
    for (size_t i = from; i < from + compared; ++i) {
      values.push_back(static_cast<double>(figure(late[i].account)));
    }
    return Percentile(values, 0.5);
  };
  const size_t last = late.size() - compared;
  const auto resident = [](const ProcessAccount& account) { return account.memory.resident(); };
  const auto descriptors = [](const ProcessAccount& account) { return account.descriptors; };
  const auto threads = [](const ProcessAccount& account) { return account.threads; };
  return {.begin = median(0, resident),
          .end = median(last, resident),
          .descriptors = static_cast<int>(median(last, descriptors) - median(0, descriptors)),
          .threads = static_cast<int>(median(last, threads) - median(0, threads))};
}

std::string Growth::Failures(double first_part) const {
  std::string failures = gone_;
  for (const Process& process : processes_) {
    const Change change = ChangeOf(process, first_part);
    if (change.begin == 0) absl::StrAppend(&failures, process.name, " was not sampled; ");
    if (change.end - change.begin > std::max(kMostGrowth * change.begin, kMostBytes)) {
      absl::StrAppend(&failures, process.name, " grew from ", change.begin / kMiB, " to ",
                      change.end / kMiB, " MiB; ");
    }
    if (change.descriptors > kMostDescriptors) {
      absl::StrAppend(&failures, process.name, " has ", change.descriptors, " descriptors more; ");
    }
    if (change.threads > kMostThreads) {
      absl::StrAppend(&failures, process.name, " has ", change.threads, " threads more; ");
    }
  }
  return failures;
}

// Thread-safe.
class Calls {
 public:
  void Count(const std::string& end) {
    const std::lock_guard lock(mutex_);
    ++ends_[end];
  }
  void Fail(const std::string& what) {
    const std::lock_guard lock(mutex_);
    std::printf("FAILED: %s\n", what.c_str());
    std::fflush(stdout);
    ++failed_;
  }
  int failed() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }
  std::string Summary() const {
    const std::lock_guard lock(mutex_);
    std::string summary;
    for (const auto& [end, count] : ends_) {
      absl::StrAppend(&summary, summary.empty() ? "" : ", ", count, " ", end);
    }
    return summary;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int> ends_;  // guarded by mutex_
  int failed_ = 0;                   // guarded by mutex_
};

void CheckEnd(const FaultJob& job, const JobEnd& end, Calls& calls) {
  if (end.verdict == Verdict::kRight) {
    calls.Count("right");
  } else if (absl::IsResourceExhausted(end.status)) {
    calls.Count("refused");
  } else {
    calls.Fail(absl::StrCat(end.what, " ", end.status.ToString(), ": ", Describe(job)));
  }
}

void CallAndLeave(const std::string& address, const FaultJob& job, std::mt19937_64& random,
                  Calls& calls) {
  const auto after = std::chrono::duration<double>(
      std::uniform_real_distribution<>(0, 1.2 * job.seconds + 0.01)(random));
  client::AttendOptions options{.deadline = kJobDeadline};
  if (random() % 2 == 0) {
    const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(after);
    options.cancelled = [end] { return Clock::now() > end; };
  } else {
    options.deadline =
        absl::FromChrono(std::chrono::duration_cast<std::chrono::microseconds>(after));
  }
  const JobEnd end = RunJob(address, job, options);
  if (absl::IsCancelled(end.status) || absl::IsDeadlineExceeded(end.status)) {
    calls.Count("left");
  } else {
    CheckEnd(job, end, calls);
  }
}

void CallOnce(const std::string& address, const std::vector<FaultJob>& kept,
              std::mt19937_64& random, Calls& calls) {
  const int kind = static_cast<int>(random() % 20);
  if (kind == 0) {
    const auto cluster = client::RequestCluster(client::Connect(address));
    cluster.ok() ? calls.Count("states") : calls.Fail(cluster.status().ToString());
  } else if (kind == 1) {
    const auto plan =
        client::RequestPlan(client::Connect(address), kept[random() % kept.size()].spec, 0);
    plan.ok() ? calls.Count("plans") : calls.Fail(plan.status().ToString());
  } else if (kind < 5) {
    CallAndLeave(address, kept[random() % kept.size()], random, calls);
  } else if (kind < 9) {
    const FaultJob& job = kept[random() % kept.size()];
    CheckEnd(job, RunJob(address, job, {.deadline = kJobDeadline}), calls);
  } else {
    const auto job = MakeSmallJob(random);
    if (!job.ok()) return calls.Fail(job.status().ToString());
    CheckEnd(*job, RunJob(address, *job, {.deadline = kJobDeadline}), calls);
  }
}

int Soak(const SoakOptions& options) {
  auto started =
      StartFaultCluster({.workers = options.workers,
                         .place = options.remote ? WorkerPlace::kRemote : WorkerPlace::kLocal,
                         .arguments = {"--log-level=warn"},
                         .worker_arguments = {"--log-level=warn"}});
  if (!started.ok()) {
    std::printf("%s\n", started.status().ToString().c_str());
    return 1;
  }
  Cluster& cluster = **started;
  std::vector<FaultJob> kept;
  std::mt19937_64 random(options.seed);
  for (int i = 0; i < kKeptJobs; ++i) {
    auto job = i % 2 == 0 ? MakeMiddleJob(random, cluster.address())
                          : MakeWideJob(random, cluster.address());
    if (!job.ok()) {
      std::printf("%s\n", job.status().ToString().c_str());
      return 1;
    }
    kept.push_back(*std::move(job));
  }
  Calls calls;
  Growth growth(cluster);
  // 60 samples of a long run: at most a fifth of the time is idle.
  const double interval = std::max(6.0, options.seconds / 60);
  const double first_part = options.seconds / 6;
  const Clock::time_point start = Clock::now();
  const auto passed = [start] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  {
    std::atomic<bool> paused = false;
    std::shared_mutex working;  // shared by callers
    std::vector<std::jthread> callers;
    for (int i = 0; i < options.callers; ++i) {
      callers.emplace_back([&, i](const std::stop_token& stop) {
        std::mt19937_64 chance(options.seed + static_cast<uint64_t>(i));
        while (!stop.stop_requested()) {
          if (paused) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            continue;
          }
          const std::shared_lock work(working);
          CallOnce(cluster.address(), kept, chance, calls);
        }
      });
    }
    double due = 0;
    while (passed() < options.seconds) {
      due += interval;
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::max(0.0, std::min(due, options.seconds) - passed())));
      paused = true;
      {
        const std::lock_guard idle(working);
        std::this_thread::sleep_for(kSettle);
        growth.Sample(passed());
      }
      paused = false;
    }
  }
  growth.Print();
  std::printf("calls in %.0f s: %s\n", passed(), calls.Summary().c_str());
  std::string failures = growth.Failures(first_part);
  if (calls.failed() > 0) absl::StrAppend(&failures, calls.failed(), " calls failed; ");
  const absl::Status stopped = cluster.Stop();
  if (!stopped.ok()) absl::StrAppend(&failures, stopped.ToString());
  if (!failures.empty()) {
    std::printf("FAILED: %s logs are in %s\n", failures.c_str(), cluster.KeepLogs().c_str());
    return 1;
  }
  std::printf("flat\n");
  return 0;
}

}  // namespace
}  // namespace hilbert_ring::testing

int main(int argc, char** argv) {
  hilbert_ring::testing::SoakOptions options;
  CLI::App app("Runs mixed jobs for a while and fails when a process grows.", "soak");
  app.add_option("--seconds", options.seconds, "how long")->check(CLI::Range(1.0, 1e6));
  app.add_option("--workers", options.workers)->check(CLI::Range(1, 64));
  app.add_option("--callers", options.callers, "that call at once")->check(CLI::Range(1, 256));
  app.add_option("--remote", options.remote, "true: workers share no memory with the coordinator");
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  return hilbert_ring::testing::Soak(options);
}
