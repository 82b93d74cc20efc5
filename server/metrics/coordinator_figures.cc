#include "server/metrics/coordinator_figures.h"

#include <algorithm>
#include <functional>

#include "server/metrics/families.h"

namespace hilbert_ring::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

void AddJobs(const CoordinatorFigures& f, Families& families) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    families.push_back(ScrapedFamily::OfGauges(name, help).Add(value).Take());
  };
  gauge("hilbert_ring_ready", "Whether the coordinator takes jobs: 1 or 0", f.ready ? 1 : 0);
  gauge("hilbert_ring_jobs_running", "Jobs that have workers", f.jobs_running);
  gauge("hilbert_ring_jobs_queued", "Jobs that wait for their turn", f.jobs_queued);
  gauge("hilbert_ring_workers_busy", "Workers that hold a job", f.workers_busy);
  ScrapedFamily phases = ScrapedFamily::OfGauges("hilbert_ring_jobs_in_phase", "Jobs by phase");
  for (const auto& [phase, jobs] : f.jobs_in_phase)
    phases.Add(jobs, {{"phase", std::string(phase)}});
  families.push_back(std::move(phases).Take());
}

void AddWorkers(const CoordinatorFigures& f, Families& families) {
  const auto count = [&f](std::string_view state) {
    return static_cast<double>(
        std::count_if(f.workers.begin(), f.workers.end(),
                      [state](const WorkerSeries& worker) { return worker.state == state; }));
  };
  ScrapedFamily states =
      ScrapedFamily::OfGauges("hilbert_ring_workers", "Workers that are registered, by state");
  for (const std::string_view state : kWorkerStates) {
    states.Add(count(state), {{"state", std::string(state)}});
  }
  families.push_back(std::move(states).Take());
  families.push_back(ScrapedFamily::OfGauges("hilbert_ring_workers_up", "Workers that take jobs")
                         .Add(count("up"))
                         .Take());
  families.push_back(
      ScrapedFamily::OfCounters("hilbert_ring_worker_restarts_total",
                                "Worker processes of the coordinator that ended and were started "
                                "again")
          .Add(static_cast<double>(f.workers_restarted))
          .Take());
  const auto of_each = [&](const char* name, const char* help,
                           const std::function<double(const WorkerSeries&)>& value) {
    ScrapedFamily family = ScrapedFamily::OfGauges(name, help);
    for (const WorkerSeries& worker : f.workers) {
      family.Add(value(worker), {{"worker", worker.worker}});
    }
    families.push_back(std::move(family).Take());
  };
  of_each("hilbert_ring_worker_up", "Whether the worker takes jobs: 1 or 0",
          [](const WorkerSeries& worker) { return worker.state == "up" ? 1 : 0; });
  of_each("hilbert_ring_worker_heartbeat_age_seconds", "Seconds since the worker's last heartbeat",
          [](const WorkerSeries& worker) { return worker.heartbeat_age_seconds; });
  of_each("hilbert_ring_worker_memory_limit_bytes", "Memory that jobs may take on the worker",
          [](const WorkerSeries& worker) { return worker.memory_limit_bytes; });
  of_each("hilbert_ring_worker_memory_used_bytes", "Memory that jobs hold on the worker now",
          [](const WorkerSeries& worker) { return worker.memory_used_bytes; });
  of_each("hilbert_ring_worker_memory_resident_bytes", "Resident memory of the worker's process",
          [](const WorkerSeries& worker) { return worker.memory_resident_bytes; });
  ScrapedFamily info = ScrapedFamily::OfGauges(
      "hilbert_ring_worker_info",
      "Device, kernel, transport of rings and state of the worker; always 1");
  for (const WorkerSeries& worker : f.workers) {
    info.Add(1, {{"worker", worker.worker},
                 {"device", worker.device},
                 {"kernel", worker.kernel},
                 {"transport", worker.transport},
                 {"state", std::string(worker.state)}});
  }
  families.push_back(std::move(info).Take());
}

void AddMemoryAndCaches(const CoordinatorFigures& f, Families& families) {
  ScrapedFamily used =
      ScrapedFamily::OfGauges("hilbert_ring_coordinator_memory_used_bytes",
                              "Memory of the coordinator that jobs hold, by account: calls that "
                              "wait, copies of rows, coordinates, streams, orders that are kept");
  ScrapedFamily limit =
      ScrapedFamily::OfGauges("hilbert_ring_coordinator_memory_limit_bytes",
                              "Memory of the coordinator that jobs may hold, by account");
  for (const MemoryAccount& memory : f.memory) {
    used.Add(static_cast<double>(memory.used_bytes), {{"account", std::string(memory.account)}});
    limit.Add(static_cast<double>(memory.limit_bytes), {{"account", std::string(memory.account)}});
  }
  ScrapedFamily hits = ScrapedFamily::OfCounters(
      "hilbert_ring_cache_hits_total", "Orders, shards' memory and rings that were found");
  ScrapedFamily misses = ScrapedFamily::OfCounters(
      "hilbert_ring_cache_misses_total", "Orders, shards' memory and rings that had to be made");
  for (const CacheCount& cache : f.caches) {
    hits.Add(static_cast<double>(cache.hits), {{"cache", std::string(cache.cache)}});
    misses.Add(static_cast<double>(cache.misses), {{"cache", std::string(cache.cache)}});
  }
  for (ScrapedFamily* family : {&used, &limit, &hits, &misses}) {
    families.push_back(std::move(*family).Take());
  }
}

}  // namespace

Families FamiliesOf(const CoordinatorFigures& figures) {
  Families families;
  AddJobs(figures, families);
  AddWorkers(figures, families);
  families.push_back(ScrapedFamily::OfGauges("hilbert_ring_rings", "Rings that are formed")
                         .Add(figures.rings)
                         .Take());
  families.push_back(
      ScrapedFamily::OfGauges("hilbert_ring_ring_generation", "Generation of the last ring")
          .Add(static_cast<double>(figures.ring_generation))
          .Take());
  AddMemoryAndCaches(figures, families);
  return families;
}

}  // namespace hilbert_ring::server
