#include "server/metrics/metrics.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/process_figures.h"
#include "server/metrics/worker_metrics.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void ExpectLines(const std::string& text, std::initializer_list<const char*> lines) {
  for (const char* line : lines) EXPECT_THAT(text, HasSubstr(absl::StrCat(line, "\n")));
}

TEST(Metrics, CountsJobs) {
  Metrics metrics({.methods = {"Plan"}, .reasons = {"QUEUE_FULL"}, .causes = {"WORKER_LOST"}});
  metrics.CountJob(absl::StatusCode::kOk, "");
  metrics.CountJob(absl::StatusCode::kCancelled, "CLIENT_CANCELLED");
  metrics.CountJob(absl::StatusCode::kInternal, "");
  metrics.ObserveJob({.compute = 20, .exposed_exchange = 4, .total = 23.1});
  metrics.CountRefused("CLIENT_IDLE");
  metrics.ObserveRing(absl::StatusCode::kOk, true, 0.02);
  metrics.ObserveRing(absl::StatusCode::kUnavailable, false, 20);
  ExpectLines(
      metrics.Serialize(),
      {"hilbert_ring_jobs_total{code=\"OK\"} 1", "hilbert_ring_jobs_total{code=\"CANCELLED\"} 1",
       "hilbert_ring_jobs_total{code=\"DATA_LOSS\"} 0",
       "hilbert_ring_jobs_failed_total{reason=\"CLIENT_CANCELLED\"} 1",
       "hilbert_ring_jobs_failed_total{reason=\"NONE\"} 1",
       "hilbert_ring_jobs_failed_total{reason=\"QUEUE_FULL\"} 0",
       "hilbert_ring_calls_refused_total{reason=\"CLIENT_IDLE\"} 1",
       "hilbert_ring_calls_refused_total{reason=\"QUEUE_FULL\"} 0",
       "hilbert_ring_job_retries_total{cause=\"WORKER_LOST\"} 0",
       "hilbert_ring_ring_form_seconds_count 1",
       "hilbert_ring_job_phase_seconds_sum{phase=\"compute\"} 20",
       "hilbert_ring_job_phase_seconds_sum{phase=\"exposed_exchange\"} 4",
       "hilbert_ring_job_seconds_sum 23.1"});
}

TEST(Metrics, ModelsAreCountedByNameUpToALimit) {
  Metrics metrics;
  EXPECT_THAT(metrics.Serialize(),
              HasSubstr("hilbert_ring_model_tiles_total{model=\"other\"} 0\n"));
  metrics.CountModelJob("slide", absl::StatusCode::kOk, 30);
  metrics.CountModelJob("slide", absl::StatusCode::kCancelled, 40);
  for (size_t i = 0; i < Metrics::kMostModels; ++i) {
    metrics.CountModelJob("m" + std::to_string(i), absl::StatusCode::kOk, 1);
  }
  metrics.CountModelJob("slide", absl::StatusCode::kOk, 1);
  const std::string text = metrics.Serialize();
  ExpectLines(text, {"hilbert_ring_model_jobs_total{code=\"OK\",model=\"slide\"} 2",
                     "hilbert_ring_model_tiles_total{model=\"slide\"} 31",
                     "hilbert_ring_model_tiles_total{model=\"m254\"} 1",
                     "hilbert_ring_model_tiles_total{model=\"other\"} 1"});
  EXPECT_THAT(text, Not(HasSubstr("m255")));
}

TEST(Metrics, SeriesOfAWorkerLeaveWithIt) {
  Metrics metrics;
  metrics.CountJoined("a:1");
  metrics.CountJoined("b:1");
  v1::WorkerReport share;
  share.set_worker("a:1");
  share.set_memory_peak_bytes(30);
  share.set_memory_predicted_bytes(40);
  metrics.AddShare(share);
  metrics.CountMismatch("a:1");
  std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_memory_peak_bytes{worker=\"a:1\"} 30\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_memory_predicted_bytes{worker=\"a:1\"} 40\n"));
  metrics.RemoveWorker("a:1");
  metrics.AddShare(share);  // of a job that ended after it
  EXPECT_THAT(metrics.Serialize(), Not(HasSubstr("a:1")));
  metrics.CountFailure("a:1");
  metrics.KeepWorkers({"b:1"}, metrics.Moment());
  text = metrics.Serialize();
  EXPECT_THAT(text, Not(HasSubstr("a:1")));
  EXPECT_THAT(text, HasSubstr("worker=\"b:1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_mismatches_total 1\n")) << "all workers count";
}

TEST(Metrics, AWorkerThatJoinsDuringAScrapeStays) {
  Metrics metrics;
  metrics.CountJoined("a:1");
  const int64_t looked = metrics.Moment();
  // a:1 has left; then two join, one at its address.
  metrics.CountJoined("a:1");
  metrics.CountJoined("b:1");
  metrics.CountFailure("b:1");
  metrics.KeepWorkers({}, looked);
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_failures_total{worker=\"a:1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_worker_failures_total{worker=\"b:1\"} 1\n"));
  metrics.KeepWorkers({"b:1"}, metrics.Moment());
  EXPECT_THAT(metrics.Serialize(), Not(HasSubstr("a:1"))) << "the next scrape finds it gone";
}

TEST(Metrics, AScrapeShowsTheCurrentState) {
  Metrics metrics;
  CoordinatorFigures figures;
  figures.ready = true;
  figures.jobs_queued = 4;
  figures.jobs_in_phase = {{"waiting_for_workers", 2}};
  figures.workers.resize(2);
  figures.workers[0].set_address("a:1");
  figures.workers[0].set_device("a \"fast\" one");
  figures.workers[0].set_state(v1::ClusterWorker::STATE_UP);
  figures.workers[1].set_address("b:1");
  figures.workers[1].set_state(v1::ClusterWorker::STATE_BACKING_OFF);
  figures.memory = {{"waiting", 5, 50}};
  ExpectLines(
      metrics.Serialize(figures, "1.2.3"),
      {"hilbert_ring_ready 1", "hilbert_ring_jobs_queued 4",
       "hilbert_ring_jobs_in_phase{phase=\"waiting_for_workers\"} 2", "hilbert_ring_workers_up 1",
       "hilbert_ring_workers{state=\"backing_off\"} 1",
       "hilbert_ring_workers{state=\"quarantined\"} 0", "hilbert_ring_worker_up{worker=\"b:1\"} 0",
       "hilbert_ring_coordinator_memory_limit_bytes{account=\"waiting\"} 50",
       "hilbert_ring_build_info{version=\"1.2.3\"} 1"});
  EXPECT_THAT(metrics.Serialize(figures, ""), HasSubstr("device=\"a \\\"fast\\\" one\""));
  EXPECT_THAT(metrics.Serialize(), Not(HasSubstr("a:1"))) << "the next scrape has other workers";
}

struct AStatus {
  int code = 0;
  int error_code() const { return code; }
};

TEST(RequestMetrics, CountsByMethodAndCode) {
  Metrics metrics({.methods = {"Plan", "Attend"}, .reasons = {}, .causes = {}});
  metrics.requests().Count("Plan", [] { return AStatus{0}; });
  metrics.requests().Count("Plan", [&] {
    EXPECT_THAT(metrics.Serialize(),
                HasSubstr("hilbert_ring_requests_in_flight{method=\"Plan\"} 1\n"));
    return AStatus{static_cast<int>(absl::StatusCode::kResourceExhausted)};
  });
  {
    RequestMetrics::Request open = metrics.requests().Begin("Attend");
    const RequestMetrics::Request moved = std::move(open);
  }
  std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("hilbert_ring_requests_in_flight{method=\"Plan\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_requests_in_flight{method=\"Attend\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("hilbert_ring_request_seconds_count{method=\"Plan\"} 2\n"));
  ExpectLines(text,
              {"code=\"OK\",method=\"Plan\"} 1", "code=\"RESOURCE_EXHAUSTED\",method=\"Plan\"} 1",
               "code=\"CANCELLED\",method=\"Attend\"} 1"});
}

TEST(ProcessFigures, AreThoseOfTheKernel) {
  const auto value = [](const std::string& name) {
    for (const prometheus::MetricFamily& family : ProcessFigures()) {
      if (family.name != name) continue;
      return std::max(family.metric.at(0).gauge.value, family.metric.at(0).counter.value);
    }
    return -1.0;
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_threads"), 1);
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  const double open = value("process_open_fds");
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/dev/null", "r"), std::fclose);
  EXPECT_EQ(value("process_open_fds"), open + 1);
  EXPECT_GT(value("process_max_fds"), open);
  const auto now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  EXPECT_NEAR(value("process_start_time_seconds"), now.count(), 600);
  EXPECT_TRUE(ProcessFigures("/nowhere").size() <= 1)
      << "a figure that the kernel lacks is omitted";
}

}  // namespace
}  // namespace hilbert_ring::server
