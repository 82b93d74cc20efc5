// Whether a worker that tells its progress moves. It is told what the worker says and what time it
// is, and neither waits nor locks.
//
// One that says the same again has not moved, and neither has one that goes back. Of files alone a
// worker may say for long no more than that it still reads them, or brings them to the disk.
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
    kReads,  // its rows, from files
    kComputes,
    kHandsOver,  // it has computed: its outputs and figures are still to come
  };

  // file_bytes: that the workers of the job write, or nothing where it has no files.
  explicit ProgressNews(std::optional<int64_t> file_bytes) : file_bytes_(file_bytes) {}

  // A wait for the workers begins.
  void Begin(Clock::time_point now) { bytes_at_ = now; }

  bool Moves(const v1::RunProgress& progress, Does does, Clock::time_point now);

  // That it has ever told, and the step that it told last.
  const v1::RunProgress& furthest() const { return furthest_; }

 private:
  const std::optional<int64_t> file_bytes_;
  v1::RunProgress furthest_;
  Clock::time_point bytes_at_;  // when there were more of files
};

}  // namespace hilbert_ring::server
