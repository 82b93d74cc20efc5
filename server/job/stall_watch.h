// Finds the worker that holds a run up. A run stalls if no awaited worker moves; the culprit waits
// for no peer, or in the earliest step of the exchange. A worker whose outputs wait for the client
// does not count. A worker that repeats its progress or goes back does not move, except for the
// time of a slow disk while it reads or writes files. The watch neither waits nor locks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

class StallWatch {
 public:
  struct Stall {
    int rank = 0;
    int64_t waiting_step = 0;  // of the exchange; 0: waits for no peer
  };

  // received_bytes: in the exchange, by rank. A worker that waits there reports nothing: it gets
  // the time of these bytes at 10 MB/s beyond the timeout. file_bytes: written by all workers;
  // empty for a job without files.
  StallWatch(Clock::duration timeout, const std::vector<int64_t>& received_bytes,
             std::optional<int64_t> file_bytes = std::nullopt);

  void Begin(Clock::time_point now);

  // step: of the exchange; 0: the worker computes.
  void Waits(int rank, int64_t step, Clock::time_point now);

  // computes: it does not read files, or send outputs and figures. Returns whether the worker
  // moved.
  bool Progressed(int rank, const v1::RunProgress& progress, bool computes, Clock::time_point now);

  void Forwarding(int rank, bool forwarding, Clock::time_point now);  // the worker moved

  Clock::duration ForwardedFor(int rank, Clock::time_point now) const;  // time of that since Begin

  // awaited: by rank. Empty if an awaited worker may still move.
  std::optional<Stall> Find(const std::vector<bool>& awaited, Clock::time_point now) const;

  double fraction() const;  // the mean of the workers
  int64_t layer() const;    // computed by all

 private:
  struct Worker {
    Clock::duration slack{0};  // beyond the timeout, in the exchange
    Clock::time_point moved_at;
    int64_t waiting_step = 0;
    bool forwarding = false;
    Clock::time_point forwarding_since;
    Clock::duration forwarded{0};
    v1::RunProgress furthest;    // with the last step
    Clock::time_point bytes_at;  // of the last growth of file_bytes
  };

  const Clock::duration timeout_;
  const std::optional<Clock::duration> disk_limit_;  // of files
  std::vector<Worker> workers_;                      // by rank
};

}  // namespace hilbert_ring::server
