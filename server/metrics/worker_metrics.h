// A worker's metrics, which docs/metrics.md lists.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/metrics/request_metrics.h"

namespace hilbert_ring::server {

struct RunFigures {
  std::string transport;  // of its ring
  int64_t tokens = 0;
  double flops = 0, flops_planned = 0;
  double receive_seconds = 0, compute_seconds = 0, exchange_seconds = 0,
         exposed_exchange_seconds = 0;
  int64_t bytes_sent = 0, bytes_received = 0, bytes_received_planned = 0;
  int64_t memory_peak_bytes = 0, memory_predicted_bytes = 0;
  int64_t file_bytes_read = 0, file_bytes_written = 0;  // of tensors by reference
};

struct WorkerProcessFigures {
  std::string version, device, kernel, transport;
  bool registered = false;
  int runs = 0;  // open
  int rings = 0;
  int64_t memory_limit_bytes = 0, memory_used_bytes = 0;
  int models = 0;  // loaded
  int64_t model_memory_limit_bytes = 0, model_memory_used_bytes = 0;
  std::map<std::string, double> certificate_ends;  // by name, in seconds since 1970
};

// Thread-safe.
class WorkerMetrics {
 public:
  WorkerMetrics();
  ~WorkerMetrics();

  RequestMetrics& requests();

  void CountRun(absl::StatusCode code);
  void ObserveRun(const RunFigures& figures);  // without error
  void ObserveCancel(double seconds);          // until a cancelled job's memory was free
  void CountRegistration();
  void CountRefused(const std::string& reason);  // a request of /metrics

  std::string Serialize(const WorkerProcessFigures& figures) const;
  static const char* ContentType() { return "text/plain; version=0.0.4; charset=utf-8"; }

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace hilbert_ring::server
