#include "server/metrics/metrics.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/metrics/families.h"
#include "server/metrics/process_figures.h"

namespace hilbert_ring::server {
namespace {

using prometheus::Counter;
using prometheus::Histogram;

constexpr std::string_view kPhases[] = {
    "queue", "ring", "receive", "compute", "exchange", "exposed_exchange", "send"};
constexpr std::string_view kTransports[] = {"gloo", "nccl", "none"};
constexpr char kOtherModels[] = "other";
constexpr double kLeastMeasured = 0.01;  // seconds; rates of shorter times are noise

// Workers send it: unknown names share a series.
std::string TransportLabel(const std::string& transport) {
  const bool known =
      std::find(std::begin(kTransports), std::end(kTransports), transport) != std::end(kTransports);
  return known ? transport : "other";
}

std::string CodeLabel(absl::StatusCode code) { return absl::StatusCodeToString(code); }

std::string ReasonLabel(const std::string& reason) { return reason.empty() ? "NONE" : reason; }

}  // namespace

struct Metrics::Families {
  explicit Families(const MetricLabels& labels) : requests(registry, labels.methods) {}

  prometheus::Registry registry;
  RequestMetrics requests;

  Counters& jobs =
      AddCounters(registry, "hilbert_ring_jobs_total", "Jobs that ended, by status code");
  Counters& failed = AddCounters(registry, "hilbert_ring_jobs_failed_total",
                                 "Jobs that ended with an error, by its reason");
  Counter& stream_epochs = AddCounter(registry, "hilbert_ring_stream_epochs_total",
                                      "Epochs of streams without end that were computed");
  Counters& refused = AddCounters(registry, "hilbert_ring_calls_refused_total",
                                  "Calls that were refused before they were jobs, by reason");
  Counters& executions = AddCounters(registry, "hilbert_ring_executions_total",
                                     "Tries at jobs on workers that ended, by status code");
  Counters& retries =
      AddCounters(registry, "hilbert_ring_job_retries_total",
                  "Tries at jobs after the one before failed, by the reason of its failure");
  Histogram& total =
      AddHistogram(registry, "hilbert_ring_job_seconds",
                   "Seconds of jobs that ended well, from Open to the report", kSecondsBuckets);
  Histograms& phases =
      AddHistograms(registry, "hilbert_ring_job_phase_seconds",
                    "Seconds of jobs that ended well, by phase; exchange and exposed_exchange are "
                    "parts of compute, of the worker with most of them");
  Histogram& cancel = AddHistogram(
      registry, "hilbert_ring_cancel_seconds",
      "Seconds until the memory of a cancelled job was free on a worker", kSecondsBuckets);
  Counter& tokens =
      AddCounter(registry, "hilbert_ring_tokens_total", "Tokens of jobs that ended well");
  Counters& model_jobs = AddCounters(registry, "hilbert_ring_model_jobs_total",
                                     "Jobs of encoders that ended, by model and status code");
  Counters& model_tiles = AddCounters(registry, "hilbert_ring_model_tiles_total",
                                      "Tiles of encoders' jobs that ended well, by model");
  Counter& rows_checked = AddCounter(registry, "hilbert_ring_rows_checked_total",
                                     "Rows of outputs that were computed again");
  Counter& rows_not_judged = AddCounter(
      registry, "hilbert_ring_rows_not_judged_total",
      "Rows drawn to be computed again that see numbers that are not finite, or scores beyond "
      "float32");
  Counter& all_mismatches =
      AddCounter(registry, "hilbert_ring_mismatches_total",
                 "Jobs in which a worker, registered or gone, sent a wrong row");
  Counter& joined = AddCounter(registry, "hilbert_ring_worker_joins_total",
                               "Times that a worker joined, anew or again");
  Counter& left =
      AddCounter(registry, "hilbert_ring_worker_departures_total", "Times that a worker left");
  Counter& received =
      AddCounter(registry, "hilbert_ring_received_bytes_total", "Payload received from clients");
  Counter& sent = AddCounter(registry, "hilbert_ring_sent_bytes_total", "Payload sent to clients");
  Counters& exchanged =
      AddCounters(registry, "hilbert_ring_exchanged_bytes_total",
                  "Keys and values received by workers from each other, by transport");
  Counters& exchange_planned =
      AddCounters(registry, "hilbert_ring_exchange_planned_bytes_total",
                  "Keys and values that the plans predicted workers to receive, by transport");
  Counter& exchange_naive =
      AddCounter(registry, "hilbert_ring_exchange_naive_bytes_total",
                 "Keys and values of those jobs if every worker received all of them");
  Counter& flops = AddCounter(registry, "hilbert_ring_flops_total",
                              "Floating-point operations of jobs that ended well");
  Counter& flops_planned =
      AddCounter(registry, "hilbert_ring_planned_flops_total",
                 "Floating-point operations that the plans of those jobs predicted");
  Histogram& memory_ratio =
      AddHistogram(registry, "hilbert_ring_memory_peak_over_predicted_ratio",
                   "Peak memory of a job on a worker, over the plan's prediction", kRatioBuckets);
  Counters& rings =
      AddCounters(registry, "hilbert_ring_rings_formed_total",
                  "Tries to form a ring, by status code and whether it was formed before");
  Histogram& ring_seconds = AddHistogram(registry, "hilbert_ring_ring_form_seconds",
                                         "Seconds to form a ring", kSecondsBuckets);

  Counters& mismatches = AddCounters(registry, "hilbert_ring_worker_mismatches_total",
                                     "Jobs in which the worker sent a wrong row");
  Counters& failures =
      AddCounters(registry, "hilbert_ring_worker_failures_total",
                  "Times that the worker could not be reached, or failed a job or a ring");
  Counters& worker_flops = AddCounters(registry, "hilbert_ring_worker_flops_total",
                                       "Floating-point operations of the worker");
  Counters& worker_compute = AddCounters(registry, "hilbert_ring_worker_compute_seconds_total",
                                         "Seconds in which the worker computed");
  Gauges& best_rate =
      AddGauges(registry, "hilbert_ring_worker_best_flops_per_second",
                "The highest rate at which the worker computed a job, since it joined");
  Gauges& peak = AddGauges(registry, "hilbert_ring_worker_memory_peak_bytes",
                           "Peak memory of the worker's last job");
  Gauges& predicted = AddGauges(registry, "hilbert_ring_worker_memory_predicted_bytes",
                                "Memory that the plan predicted for the worker's last job");

  Mutex model_mutex;
  std::set<std::string> models ABSL_GUARDED_BY(model_mutex);

  std::string ModelLabel(const std::string& model) {
    const MutexLock lock(model_mutex);
    if (models.size() < kMostModels) models.insert(model);
    return models.contains(model) ? model : kOtherModels;
  }

  Mutex mutex;                                // held while series are used, which Remove destroys
  int64_t events ABSL_GUARDED_BY(mutex) = 0;  // events of workers so far
  // Workers with series, and the number of each one's last event.
  std::map<std::string, int64_t> workers ABSL_GUARDED_BY(mutex);

  void Know(const std::string& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!workers.insert_or_assign(worker, ++events).second) return;
    for (Counters* family : {&mismatches, &failures, &worker_flops, &worker_compute}) {
      family->Add({{"worker", worker}});
    }
    for (Gauges* family : {&best_rate, &peak, &predicted}) family->Add({{"worker", worker}});
  }

  void Remove(const std::string& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    workers.erase(worker);
    const prometheus::Labels labels = {{"worker", worker}};
    for (Counters* family : {&mismatches, &failures, &worker_flops, &worker_compute}) {
      family->Remove(&family->Add(labels));
    }
    for (Gauges* family : {&best_rate, &peak, &predicted}) family->Remove(&family->Add(labels));
  }
};

Metrics::Metrics(const MetricLabels& labels) : families_(std::make_unique<Families>(labels)) {
  Families& f = *families_;
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const prometheus::Labels label = {{"code", CodeLabel(static_cast<absl::StatusCode>(code))}};
    f.jobs.Add(label);
    f.executions.Add(label);
  }
  for (const std::string& reason : labels.reasons) {
    f.failed.Add({{"reason", reason}});
    f.refused.Add({{"reason", reason}});
  }
  for (const std::string& cause : labels.causes) f.retries.Add({{"cause", cause}});
  for (const std::string_view phase : kPhases) {
    f.phases.Add({{"phase", std::string(phase)}}, kSecondsBuckets);
  }
  for (const std::string_view transport : kTransports) {
    f.exchanged.Add({{"transport", std::string(transport)}});
    f.exchange_planned.Add({{"transport", std::string(transport)}});
  }
  for (const char* again : {"false", "true"}) f.rings.Add({{"code", "OK"}, {"again", again}});
  f.model_jobs.Add({{"model", kOtherModels}, {"code", "OK"}});
  f.model_tiles.Add({{"model", kOtherModels}});
}

Metrics::~Metrics() = default;

RequestMetrics& Metrics::requests() { return families_->requests; }

void Metrics::CountJob(absl::StatusCode code, const std::string& reason) {
  families_->jobs.Add({{"code", CodeLabel(code)}}).Increment();
  if (code == absl::StatusCode::kOk) return;
  families_->failed.Add({{"reason", ReasonLabel(reason)}}).Increment();
}

void Metrics::ObserveJob(const JobSeconds& seconds) {
  const double of_phases[] = {seconds.queue,   seconds.ring,     seconds.receive,
                              seconds.compute, seconds.exchange, seconds.exposed_exchange,
                              seconds.send};
  for (size_t i = 0; i < std::size(kPhases); ++i) {
    families_->phases.Add({{"phase", std::string(kPhases[i])}}, kSecondsBuckets)
        .Observe(of_phases[i]);
  }
  families_->total.Observe(seconds.total);
}

void Metrics::CountStreamEpoch() { families_->stream_epochs.Increment(); }

void Metrics::CountRefused(const std::string& reason) {
  families_->refused.Add({{"reason", ReasonLabel(reason)}}).Increment();
}

void Metrics::CountExecution(absl::StatusCode code) {
  families_->executions.Add({{"code", CodeLabel(code)}}).Increment();
}

void Metrics::CountRetry(const std::string& cause) {
  families_->retries.Add({{"cause", ReasonLabel(cause)}}).Increment();
}

void Metrics::CountRowsChecked(int64_t rows) {
  families_->rows_checked.Increment(static_cast<double>(rows));
}

void Metrics::CountRowsNotJudged(int64_t rows) {
  families_->rows_not_judged.Increment(static_cast<double>(rows));
}

void Metrics::CountMismatch(const std::string& worker) {
  families_->all_mismatches.Increment();
  const MutexLock lock(families_->mutex);
  families_->Know(worker);
  families_->mismatches.Add({{"worker", worker}}).Increment();
}

void Metrics::CountFailure(const std::string& worker) {
  const MutexLock lock(families_->mutex);
  families_->Know(worker);
  families_->failures.Add({{"worker", worker}}).Increment();
}

void Metrics::CountJoined(const std::string& worker) {
  families_->joined.Increment();
  const MutexLock lock(families_->mutex);
  families_->Know(worker);
}

void Metrics::CountLeft() { families_->left.Increment(); }

void Metrics::ObserveRing(absl::StatusCode code, bool again, double seconds) {
  families_->rings.Add({{"code", CodeLabel(code)}, {"again", again ? "true" : "false"}})
      .Increment();
  if (code == absl::StatusCode::kOk) families_->ring_seconds.Observe(seconds);
}

void Metrics::ObserveCancel(double seconds) { families_->cancel.Observe(seconds); }

void Metrics::AddTokens(int64_t tokens) {
  families_->tokens.Increment(static_cast<double>(tokens));
}

void Metrics::CountModelJob(const std::string& model, absl::StatusCode code, int64_t tiles) {
  const std::string label = families_->ModelLabel(model);
  families_->model_jobs.Add({{"model", label}, {"code", CodeLabel(code)}}).Increment();
  prometheus::Counter& done = families_->model_tiles.Add({{"model", label}});
  if (code == absl::StatusCode::kOk) done.Increment(static_cast<double>(tiles));
}

void Metrics::AddReceived(int64_t bytes) {
  families_->received.Increment(static_cast<double>(bytes));
}

void Metrics::AddSent(int64_t bytes) { families_->sent.Increment(static_cast<double>(bytes)); }

void Metrics::AddNaiveExchange(int64_t bytes) {
  families_->exchange_naive.Increment(static_cast<double>(bytes));
}

void Metrics::AddShare(const v1::WorkerReport& share) {
  Families& f = *families_;
  const prometheus::Labels transport = {{"transport", TransportLabel(share.transport())}};
  f.exchanged.Add(transport).Increment(static_cast<double>(share.bytes_received()));
  f.exchange_planned.Add(transport).Increment(
      static_cast<double>(share.bytes_received_predicted()));
  f.flops.Increment(share.flops());
  f.flops_planned.Increment(share.flops_predicted());
  if (share.memory_predicted_bytes() > 0) {
    f.memory_ratio.Observe(static_cast<double>(share.memory_peak_bytes()) /
                           static_cast<double>(share.memory_predicted_bytes()));
  }
  const MutexLock lock(f.mutex);
  if (!f.workers.contains(share.worker())) return;  // it has left
  const prometheus::Labels worker = {{"worker", share.worker()}};
  f.worker_flops.Add(worker).Increment(share.flops());
  f.worker_compute.Add(worker).Increment(share.compute_seconds());
  f.peak.Add(worker).Set(static_cast<double>(share.memory_peak_bytes()));
  f.predicted.Add(worker).Set(static_cast<double>(share.memory_predicted_bytes()));
  if (share.compute_seconds() < kLeastMeasured) return;
  prometheus::Gauge& best = f.best_rate.Add(worker);
  best.Set(std::max(best.Value(), share.flops() / share.compute_seconds()));
}

void Metrics::RemoveWorker(const std::string& worker) {
  const MutexLock lock(families_->mutex);
  families_->Remove(worker);
}

int64_t Metrics::Moment() const {
  const MutexLock lock(families_->mutex);
  return families_->events;
}

void Metrics::KeepWorkers(const std::set<std::string>& there, int64_t looked) {
  const MutexLock lock(families_->mutex);
  std::vector<std::string> gone;
  for (const auto& [worker, last] : families_->workers) {
    if (last <= looked && !there.contains(worker)) gone.push_back(worker);
  }
  for (const std::string& worker : gone) families_->Remove(worker);
}

std::string Metrics::Serialize(const CoordinatorFigures& figures,
                               const std::string& version) const {
  MetricFamilies families = families_->registry.Collect();
  std::ranges::move(FamiliesOf(figures), std::back_inserter(families));
  return SerializeWithProcess(std::move(families), figures.certificate_ends, version);
}

}  // namespace hilbert_ring::server
