#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"

namespace hilbert_ring::testing {

class MemoryWatch {
 public:
  explicit MemoryWatch(const Cluster& cluster);
  ~MemoryWatch() { Stop(); }
  void Stop();

  int64_t coordinator_peak() const { return coordinator_peak_; }

  // Peaks of the workers above their idle size, in ascending order.
  std::vector<int64_t> WorkerPeaks() const;

 private:
  void Sample();

  const pid_t coordinator_;
  const std::vector<pid_t> workers_;
  std::vector<int64_t> idle_, peak_;  // by worker; read after Stop
  std::atomic<int64_t> coordinator_peak_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Sends K, V and Q until all rows are sent, the call ends or `stop` is set.
void SendConstantRows(RawCall& call, const JobSpec& spec, std::atomic<int64_t>& sent,
                      const std::atomic<bool>& stop);

absl::StatusOr<v1::Report> RunConstantJob(v1::AttentionService::Stub& stub, const JobSpec& spec,
                                          std::chrono::milliseconds limit);

}  // namespace hilbert_ring::testing
