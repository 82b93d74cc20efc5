#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSecondsBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   25,
                                                     50,    100,    250,   500,  1000,  2500, 5000};

Counter& OneCounter(prometheus::Registry& registry, const std::string& name,
                    const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

Gauge& OneGauge(prometheus::Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

Family<Gauge>& WorkerGauge(prometheus::Registry& registry, const std::string& name,
                           const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  Family<Counter>& jobs = prometheus::BuildCounter()
                              .Name("hilbert_ring_jobs_total")
                              .Help("Jobs that ended, by status code")
                              .Register(registry);
  Family<Counter>& refused = prometheus::BuildCounter()
                                 .Name("hilbert_ring_calls_refused_total")
                                 .Help("Calls that were refused before they were jobs, by reason")
                                 .Register(registry);
  Family<Histogram>& seconds = prometheus::BuildHistogram()
                                   .Name("hilbert_ring_job_seconds")
                                   .Help("Seconds of jobs that ended well, by phase")
                                   .Register(registry);
  Histogram& cancel = prometheus::BuildHistogram()
                          .Name("hilbert_ring_cancel_seconds")
                          .Help("Seconds until the memory of a cancelled job was free on a worker")
                          .Register(registry)
                          .Add({}, kSecondsBuckets);
  Counter& tokens =
      OneCounter(registry, "hilbert_ring_tokens_total", "Tokens of jobs that ended well");
  Counter& retries = OneCounter(registry, "hilbert_ring_job_retries_total",
                                "Attempts at jobs after workers were lost");
  Counter& rows_checked = OneCounter(registry, "hilbert_ring_rows_checked_total",
                                     "Rows of outputs that were computed again");
  Counter& rows_not_judged =
      OneCounter(registry, "hilbert_ring_rows_not_judged_total",
                 "Rows drawn to be computed again that see numbers that are not finite, or scores "
                 "beyond float32");
  Family<Counter>& mismatches =
      prometheus::BuildCounter()
          .Name("hilbert_ring_worker_mismatches_total")
          .Help("Jobs in which a worker sent a row that is not what the definition says")
          .Register(registry);
  Counter& all_mismatches = OneCounter(
      registry, "hilbert_ring_mismatches_total",
      "Jobs in which a worker, there or gone, sent a row that is not what the definition "
      "says");
  Family<Counter>& dropped =
      prometheus::BuildCounter()
          .Name("hilbert_ring_worker_figures_dropped_total")
          .Help("Figures that workers said of themselves and that cannot be, by figure")
          .Register(registry);
  Family<Counter>& failures =
      prometheus::BuildCounter()
          .Name("hilbert_ring_worker_failures_total")
          .Help("Times that a worker could not be reached, or failed a job or a ring")
          .Register(registry);
  Counter& received =
      OneCounter(registry, "hilbert_ring_received_bytes_total", "Payload received from clients");
  Counter& sent = OneCounter(registry, "hilbert_ring_sent_bytes_total", "Payload sent to clients");
  Counter& exchanged = OneCounter(registry, "hilbert_ring_exchanged_bytes_total",
                                  "Keys and values received by workers from each other");
  Gauge& workers_up = OneGauge(registry, "hilbert_ring_workers_up", "Workers that are there");
  Gauge& running = OneGauge(registry, "hilbert_ring_jobs_running", "Jobs that were admitted");
  Gauge& queued = OneGauge(registry, "hilbert_ring_jobs_queued", "Jobs that wait for their turn");
  Family<Gauge>& phases = prometheus::BuildGauge()
                              .Name("hilbert_ring_jobs_in_phase")
                              .Help("Jobs by what they wait for")
                              .Register(registry);
  Family<Gauge>& used = WorkerGauge(registry, "hilbert_ring_worker_memory_used_bytes",
                                    "Memory that jobs hold on a worker now");
  Family<Gauge>& peak = WorkerGauge(registry, "hilbert_ring_worker_memory_peak_bytes",
                                    "Memory that the worker's last job took at its most");
  Family<Gauge>& predicted = WorkerGauge(registry, "hilbert_ring_worker_memory_predicted_bytes",
                                         "Memory that the plan said of the worker's last job");
  // Pointers to series must not be used once they are removed.
  Mutex mutex;
  std::set<std::string> workers ABSL_GUARDED_BY(mutex);
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {
  families_->jobs.Add({{"code", "OK"}});
  for (const char* phase : {"queue", "ring", "receive", "compute", "send", "total"}) {
    families_->seconds.Add({{"phase", phase}}, kSecondsBuckets);
  }
}

Metrics::~Metrics() = default;

void Metrics::CountJob(const std::string& code) {
  families_->jobs.Add({{"code", code}}).Increment();
}

void Metrics::ObserveJob(const JobSeconds& seconds) {
  const auto observe = [this](const char* phase, double value) {
    families_->seconds.Add({{"phase", phase}}, kSecondsBuckets).Observe(value);
  };
  observe("queue", seconds.queue);
  observe("ring", seconds.ring);
  observe("receive", seconds.receive);
  observe("compute", seconds.compute);
  observe("send", seconds.send);
  observe("total", seconds.total);
}

void Metrics::CountRefused(const std::string& reason) {
  families_->refused.Add({{"reason", reason}}).Increment();
}

void Metrics::CountRetry() { families_->retries.Increment(); }

void Metrics::CountRowsChecked(int64_t rows) {
  families_->rows_checked.Increment(static_cast<double>(rows));
}

void Metrics::CountRowsNotJudged(int64_t rows) {
  families_->rows_not_judged.Increment(static_cast<double>(rows));
}

void Metrics::CountDropped(std::string_view figure) {
  families_->dropped.Add({{"figure", std::string(figure)}}).Increment();
}

void Metrics::CountMismatch(const std::string& worker) {
  families_->all_mismatches.Increment();
  const MutexLock lock(families_->mutex);
  families_->workers.insert(worker);
  families_->mismatches.Add({{"worker", worker}}).Increment();
}

void Metrics::CountFailure(const std::string& worker) {
  const MutexLock lock(families_->mutex);
  families_->workers.insert(worker);
  families_->failures.Add({{"worker", worker}}).Increment();
}

void Metrics::ObserveCancel(double seconds) { families_->cancel.Observe(seconds); }

void Metrics::AddTokens(int64_t tokens) {
  families_->tokens.Increment(static_cast<double>(tokens));
}

void Metrics::AddReceived(int64_t bytes) {
  families_->received.Increment(static_cast<double>(bytes));
}

void Metrics::AddSent(int64_t bytes) { families_->sent.Increment(static_cast<double>(bytes)); }

void Metrics::AddExchanged(int64_t bytes) {
  families_->exchanged.Increment(static_cast<double>(bytes));
}

void Metrics::SetWorkersUp(int workers) { families_->workers_up.Set(workers); }

void Metrics::SetJobs(int running, int queued) {
  families_->running.Set(running);
  families_->queued.Set(queued);
}

void Metrics::SetJobsInPhase(std::string_view phase, int jobs) {
  families_->phases.Add({{"phase", std::string(phase)}}).Set(jobs);
}

void Metrics::SetWorkerUsed(const std::string& worker, int64_t bytes) {
  const MutexLock lock(families_->mutex);
  families_->workers.insert(worker);
  families_->used.Add({{"worker", worker}}).Set(static_cast<double>(bytes));
}

void Metrics::SetWorkerJob(const std::string& worker, int64_t peak_bytes, int64_t predicted_bytes) {
  const MutexLock lock(families_->mutex);
  if (!families_->workers.contains(worker)) return;  // it has left
  families_->peak.Add({{"worker", worker}}).Set(static_cast<double>(peak_bytes));
  families_->predicted.Add({{"worker", worker}}).Set(static_cast<double>(predicted_bytes));
}

void Metrics::RemoveWorker(const std::string& worker) {
  const MutexLock lock(families_->mutex);
  families_->workers.erase(worker);
  const prometheus::Labels labels = {{"worker", worker}};
  families_->failures.Remove(&families_->failures.Add(labels));
  for (Family<Gauge>* family : {&families_->used, &families_->peak, &families_->predicted}) {
    family->Remove(&family->Add(labels));
  }
  families_->mismatches.Remove(&families_->mismatches.Add(labels));
}

void Metrics::KeepWorkers(const std::set<std::string>& there) {
  std::vector<std::string> gone;
  {
    const MutexLock lock(families_->mutex);
    std::set_difference(families_->workers.begin(), families_->workers.end(), there.begin(),
                        there.end(), std::back_inserter(gone));
  }
  for (const std::string& worker : gone) RemoveWorker(worker);
}

std::string Metrics::Serialize() const {
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace hilbert_ring::server
