// Jobs of all kinds and sizes, cancellations among them, from several callers at once, for as long
// as one likes. Fails when a result is wrong, a call ends in an error that it should not, or a
// process grows.
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
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "tests/faults/fault_job.h"
#include "tests/soak/growth.h"

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

// What the calls came to. Thread-safe.
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

// Cancelled, or past its deadline, at a random moment of its life.
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
  // 60 samples of a long run; a fifth of the time at most is spent idle.
  const double interval = std::max(6.0, options.seconds / 60);
  // The first five minutes of thirty.
  const double first_part = options.seconds / 6;
  const Clock::time_point start = Clock::now();
  const auto passed = [start] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  {
    std::atomic<bool> paused = false;
    std::shared_mutex working;  // shared by those that call
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
