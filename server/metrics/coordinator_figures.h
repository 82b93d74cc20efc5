// Series of a coordinator's state at a scrape.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace hilbert_ring::server {

struct WorkerSeries {
  std::string worker;  // host:port
  std::string device, kernel, transport;
  std::string_view state;  // one of kWorkerStates
  double heartbeat_age_seconds = 0;
  int64_t memory_limit_bytes = 0, memory_used_bytes = 0, memory_resident_bytes = 0;
};
inline constexpr std::string_view kWorkerStates[] = {"joining", "up", "backing_off", "draining",
                                                     "quarantined"};

struct MemoryAccount {
  std::string_view account;
  int64_t used_bytes = 0, limit_bytes = 0;
};

struct CacheCount {
  std::string_view cache;
  int64_t hits = 0, misses = 0;
};

struct CoordinatorFigures {
  bool ready = false;
  int jobs_running = 0, jobs_queued = 0, workers_busy = 0;
  std::vector<std::pair<std::string_view, int>> jobs_in_phase;
  std::vector<WorkerSeries> workers;
  int64_t workers_restarted = 0;
  int rings = 0;
  int64_t ring_generation = 0;
  std::vector<MemoryAccount> memory;
  std::vector<CacheCount> caches;
  std::map<std::string, double> certificate_ends;  // by name, in seconds since 1970
};

std::vector<prometheus::MetricFamily> FamiliesOf(const CoordinatorFigures& figures);

}  // namespace hilbert_ring::server
