#include "server/metrics/coordinator_figures.h"

#include <algorithm>
#include <functional>

#include "server/metrics/families.h"
#include "wire/worker_state.h"

namespace hilbert_ring::server {
namespace {

using Worker = v1::ClusterWorker;

constexpr Worker::State kWorkerStates[] = {Worker::STATE_JOINING, Worker::STATE_UP,
                                           Worker::STATE_BACKING_OFF, Worker::STATE_DRAINING,
                                           Worker::STATE_QUARANTINED};

std::string StateLabel(Worker::State state) { return std::string(wire::NameOf(state)); }

void ShowWorkers(const CoordinatorFigures& f, MetricFamilies& families) {
  std::vector<Sample> states;
  double up = 0;
  for (const Worker::State state : kWorkerStates) {
    const auto count = static_cast<double>(std::ranges::count(f.workers, state, &Worker::state));
    states.push_back({count, {{"state", StateLabel(state)}}});
    if (state == Worker::STATE_UP) up = count;
  }
  ShowGauges(families, "hilbert_ring_workers", "Workers that are registered, by state", states);
  ShowGauge(families, "hilbert_ring_workers_up", "Workers that take jobs", up);
  const auto of_each = [&](const char* name, const char* help,
                           const std::function<double(const Worker&)>& value) {
    std::vector<Sample> samples;
    for (const Worker& worker : f.workers) {
      samples.push_back({value(worker), {{"worker", worker.address()}}});
    }
    ShowGauges(families, name, help, samples);
  };
  of_each("hilbert_ring_worker_up", "Whether the worker takes jobs: 1 or 0",
          [](const Worker& worker) { return worker.state() == Worker::STATE_UP ? 1 : 0; });
  of_each("hilbert_ring_worker_heartbeat_age_seconds", "Seconds since the worker's last heartbeat",
          &Worker::seconds_since_heartbeat);
  of_each("hilbert_ring_worker_memory_limit_bytes", "Memory that jobs may take on the worker",
          &Worker::memory_limit_bytes);
  of_each("hilbert_ring_worker_memory_used_bytes", "Memory that jobs hold on the worker now",
          &Worker::memory_used_bytes);
  of_each("hilbert_ring_worker_memory_resident_bytes", "Resident memory of the worker's process",
          &Worker::memory_resident_bytes);
  std::vector<Sample> info;
  for (const Worker& worker : f.workers) {
    info.push_back({1,
                    {{"worker", worker.address()},
                     {"device", worker.device()},
                     {"kernel", worker.kernel()},
                     {"transport", worker.transport()},
                     {"state", StateLabel(worker.state())}}});
  }
  ShowGauges(families, "hilbert_ring_worker_info",
             "Device, kernel, transport of rings and state of the worker; always 1", info);
}

void ShowMemoryAndCaches(const CoordinatorFigures& f, MetricFamilies& families) {
  const auto sample = [](int64_t value, const char* label, std::string_view name) {
    return Sample{static_cast<double>(value), {{label, std::string(name)}}};
  };
  std::vector<Sample> used, limit, hits, misses;
  for (const auto& memory : f.memory) {
    used.push_back(sample(memory.used_bytes, "account", memory.account));
    limit.push_back(sample(memory.limit_bytes, "account", memory.account));
  }
  for (const auto& cache : f.caches) {
    hits.push_back(sample(cache.hits, "cache", cache.cache));
    misses.push_back(sample(cache.misses, "cache", cache.cache));
  }
  ShowGauges(families, "hilbert_ring_coordinator_memory_used_bytes",
             "Memory of the coordinator that jobs hold, by account: calls that wait, copies of "
             "rows, coordinates, streams, orders that are kept",
             used);
  ShowGauges(families, "hilbert_ring_coordinator_memory_limit_bytes",
             "Memory of the coordinator that jobs may hold, by account", limit);
  ShowCounters(families, "hilbert_ring_cache_hits_total",
               "Orders, shards' memory and rings that were found", hits);
  ShowCounters(families, "hilbert_ring_cache_misses_total",
               "Orders, shards' memory and rings that had to be made", misses);
}

}  // namespace

MetricFamilies FamiliesOf(const CoordinatorFigures& f) {
  MetricFamilies families;
  ShowGauge(families, "hilbert_ring_ready", "Whether the coordinator takes jobs: 1 or 0", f.ready);
  ShowGauge(families, "hilbert_ring_jobs_running", "Jobs that have workers", f.jobs_running);
  ShowGauge(families, "hilbert_ring_jobs_queued", "Jobs that wait for their turn", f.jobs_queued);
  ShowGauge(families, "hilbert_ring_workers_busy", "Workers that hold a job", f.workers_busy);
  std::vector<Sample> phases;
  for (const auto& [phase, jobs] : f.jobs_in_phase) {
    phases.push_back({static_cast<double>(jobs), {{"phase", std::string(phase)}}});
  }
  ShowGauges(families, "hilbert_ring_jobs_in_phase", "Jobs by phase", phases);
  ShowWorkers(f, families);
  ShowCounters(families, "hilbert_ring_worker_restarts_total",
               "Worker processes of the coordinator that ended and were started again",
               {{.value = static_cast<double>(f.workers_restarted)}});
  ShowGauge(families, "hilbert_ring_rings", "Rings that are formed", f.rings);
  ShowGauge(families, "hilbert_ring_ring_generation", "Generation of the last ring",
            static_cast<double>(f.ring_generation));
  ShowMemoryAndCaches(f, families);
  return families;
}

}  // namespace hilbert_ring::server
