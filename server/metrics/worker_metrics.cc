#include "server/metrics/worker_metrics.h"

#include <iterator>
#include <utility>

#include "server/metrics/families.h"
#include "server/metrics/process_figures.h"

namespace hilbert_ring::server {
namespace {

using prometheus::Counter;
using prometheus::Histogram;

constexpr const char* kRefusals[] = {"AUTH_TOKEN", "ROLE"};
constexpr const char* kWorkerPhases[] = {"receive", "compute", "exchange", "exposed_exchange"};

}  // namespace

struct WorkerMetrics::Families {
  prometheus::Registry registry;
  RequestMetrics requests{registry, {"Greet", "PrepareRing", "ConnectRing", "CloseRing", "Run"}};
  Counters& runs = AddCounters(registry, "hilbert_ring_runs_total",
                               "Parts of jobs that ended on this worker, by status code");
  Histograms& phases =
      AddHistograms(registry, "hilbert_ring_run_phase_seconds",
                    "Seconds of parts of jobs that ended well, by phase; exchange and "
                    "exposed_exchange are parts of compute");
  Counter& tokens =
      AddCounter(registry, "hilbert_ring_run_tokens_total", "Tokens that this worker held");
  Counter& flops = AddCounter(registry, "hilbert_ring_run_flops_total",
                              "Floating-point operations of this worker");
  Counter& flops_planned =
      AddCounter(registry, "hilbert_ring_run_planned_flops_total",
                 "Floating-point operations that the plans predicted for this worker");
  Counters& exchanged =
      AddCounters(registry, "hilbert_ring_run_exchanged_bytes_total",
                  "Keys and values exchanged with other workers, by transport and direction");
  Counters& exchange_planned =
      AddCounters(registry, "hilbert_ring_run_exchange_planned_bytes_total",
                  "Keys and values that the plans predicted this worker to receive, by transport");
  Histogram& memory_ratio =
      AddHistogram(registry, "hilbert_ring_run_memory_peak_over_predicted_ratio",
                   "Peak memory of a job here, over the plan's prediction", kRatioBuckets);
  Counters& file_bytes = AddCounters(registry, "hilbert_ring_run_file_bytes_total",
                                     "Bytes of tensors by reference, by direction");
  Histogram& cancel =
      AddHistogram(registry, "hilbert_ring_run_cancel_seconds",
                   "Seconds until the memory of a cancelled job was free", kSecondsBuckets);
  Counter& registrations = AddCounter(registry, "hilbert_ring_registrations_total",
                                      "Times that this worker registered with its coordinator");
  Counters& refused = AddCounters(registry, "hilbert_ring_calls_refused_total",
                                  "Calls that were refused before they were jobs, by reason");
};

WorkerMetrics::WorkerMetrics() : families_(std::make_unique<Families>()) {
  Families& f = *families_;
  f.runs.Add({{"code", "OK"}});
  for (const char* phase : kWorkerPhases) f.phases.Add({{"phase", phase}}, kSecondsBuckets);
  for (const char* direction : {"read", "written"}) f.file_bytes.Add({{"direction", direction}});
  for (const char* direction : {"sent", "received"}) {
    f.exchanged.Add({{"transport", "gloo"}, {"direction", direction}});
  }
  f.exchange_planned.Add({{"transport", "gloo"}});
  for (const char* reason : kRefusals) f.refused.Add({{"reason", reason}});
}

WorkerMetrics::~WorkerMetrics() = default;

RequestMetrics& WorkerMetrics::requests() { return families_->requests; }

void WorkerMetrics::CountRun(absl::StatusCode code) {
  families_->runs.Add({{"code", absl::StatusCodeToString(code)}}).Increment();
}

void WorkerMetrics::ObserveRun(const RunFigures& figures) {
  Families& f = *families_;
  const double seconds[] = {figures.receive_seconds, figures.compute_seconds,
                            figures.exchange_seconds, figures.exposed_exchange_seconds};
  for (size_t i = 0; i < std::size(kWorkerPhases); ++i) {
    f.phases.Add({{"phase", kWorkerPhases[i]}}, kSecondsBuckets).Observe(seconds[i]);
  }
  f.tokens.Increment(static_cast<double>(figures.tokens));
  f.flops.Increment(figures.flops);
  f.flops_planned.Increment(figures.flops_planned);
  const auto exchanged = [&](const char* direction, int64_t bytes) {
    f.exchanged.Add({{"transport", figures.transport}, {"direction", direction}})
        .Increment(static_cast<double>(bytes));
  };
  exchanged("sent", figures.bytes_sent);
  exchanged("received", figures.bytes_received);
  f.file_bytes.Add({{"direction", "read"}}).Increment(static_cast<double>(figures.file_bytes_read));
  f.file_bytes.Add({{"direction", "written"}})
      .Increment(static_cast<double>(figures.file_bytes_written));
  f.exchange_planned.Add({{"transport", figures.transport}})
      .Increment(static_cast<double>(figures.bytes_received_planned));
  if (figures.memory_predicted_bytes > 0) {
    f.memory_ratio.Observe(static_cast<double>(figures.memory_peak_bytes) /
                           static_cast<double>(figures.memory_predicted_bytes));
  }
}

void WorkerMetrics::ObserveCancel(double seconds) { families_->cancel.Observe(seconds); }

void WorkerMetrics::CountRegistration() { families_->registrations.Increment(); }

void WorkerMetrics::CountRefused(const std::string& reason) {
  families_->refused.Add({{"reason", reason}}).Increment();
}

std::string WorkerMetrics::Serialize(const WorkerProcessFigures& figures) const {
  MetricFamilies families = families_->registry.Collect();
  const auto gauge = [&](const char* name, const char* help, double value) {
    ShowGauge(families, name, help, value);
  };
  gauge("hilbert_ring_registered", "Whether the coordinator gives this worker jobs: 1 or 0",
        figures.registered ? 1 : 0);
  gauge("hilbert_ring_runs_open", "Parts of jobs that are under way", figures.runs);
  gauge("hilbert_ring_ring_ends", "Rings that this worker is in", figures.rings);
  gauge("hilbert_ring_run_memory_limit_bytes", "Memory that jobs may take here",
        static_cast<double>(figures.memory_limit_bytes));
  gauge("hilbert_ring_run_memory_used_bytes", "Memory that jobs hold here now",
        static_cast<double>(figures.memory_used_bytes));
  gauge("hilbert_ring_models_loaded", "Models whose weights are in memory here", figures.models);
  gauge("hilbert_ring_model_memory_limit_bytes", "Memory that weights of models may take here",
        static_cast<double>(figures.model_memory_limit_bytes));
  gauge("hilbert_ring_model_memory_used_bytes", "Memory that weights of models take here now",
        static_cast<double>(figures.model_memory_used_bytes));
  ShowGauges(families, "hilbert_ring_device_info",
             "Device, kernel and transport of rings of this worker; always 1",
             {{1,
               {{"device", figures.device},
                {"kernel", figures.kernel},
                {"transport", figures.transport}}}});
  return SerializeWithProcess(std::move(families), figures.certificate_ends, figures.version);
}

}  // namespace hilbert_ring::server
