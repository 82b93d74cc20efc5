// Series of a coordinator's state at a scrape.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hilbert_ring/v1/attention.pb.h"

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace hilbert_ring::server {

struct CoordinatorFigures {
  struct Memory {
    std::string_view account;
    int64_t used_bytes = 0, limit_bytes = 0;
  };
  struct Cache {
    std::string_view cache;
    int64_t hits = 0, misses = 0;
  };

  bool ready = false;
  int jobs_running = 0, jobs_queued = 0, workers_busy = 0;
  std::vector<std::pair<std::string_view, int>> jobs_in_phase;
  std::vector<v1::ClusterWorker> workers;
  int64_t workers_restarted = 0;
  int rings = 0;
  int64_t ring_generation = 0;
  std::vector<Memory> memory;
  std::vector<Cache> caches;
  std::map<std::string, double> certificate_ends;  // by name, in seconds since 1970
};

std::vector<prometheus::MetricFamily> FamiliesOf(const CoordinatorFigures& figures);

}  // namespace hilbert_ring::server
