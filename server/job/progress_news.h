// Whether a worker's progress shows that it moves. A worker that repeats its progress or goes back
// does not, except for the time of a slow disk while it reads or writes files. This class neither
// waits nor locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

class ProgressNews {
 public:
  enum class Does {
    kReads,  // rows from files
    kComputes,
    kHandsOver,  // sends outputs and figures
  };

  // file_bytes: written by all workers; empty for a job without files.
  explicit ProgressNews(std::optional<int64_t> file_bytes) : file_bytes_(file_bytes) {}

  void Begin(Clock::time_point now) { bytes_at_ = now; }

  bool Moves(const v1::RunProgress& progress, Does does, Clock::time_point now);

  // The largest progress, with the last step.
  const v1::RunProgress& furthest() const { return furthest_; }

 private:
  const std::optional<int64_t> file_bytes_;
  v1::RunProgress furthest_;
  Clock::time_point bytes_at_;  // of the last growth of file_bytes
};

}  // namespace hilbert_ring::server
