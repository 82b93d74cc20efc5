#include "server/cluster/worker_figures.h"

namespace hilbert_ring::server {

WorkerShare ShareOf(const v1::WorkerReport& worker) {
  return {.worker = worker.worker(),
          .transport = worker.transport(),
          .flops = worker.flops(),
          .flops_planned = worker.flops_predicted(),
          .compute_seconds = worker.compute_seconds(),
          .bytes_received = worker.bytes_received(),
          .bytes_received_planned = worker.bytes_received_predicted(),
          .memory_peak_bytes = worker.memory_peak_bytes(),
          .memory_predicted_bytes = worker.memory_predicted_bytes()};
}

}  // namespace hilbert_ring::server
