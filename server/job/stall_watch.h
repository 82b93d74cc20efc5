// Finds the worker that holds a run up. A run stalls if no awaited worker moves; the culprit waits
// for no peer, or in the earliest step of the exchange. A worker whose outputs wait for the client
// does not count. The watch neither waits nor locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/process/deadline.h"

namespace hilbert_ring::server {

class StallWatch {
 public:
  struct Stall {
    int rank = 0;
    int64_t waiting_step = 0;  // of the exchange; 0: waits for no peer
  };

  // received_bytes: in the exchange, by rank. A worker that waits there reports nothing: it gets
  // the time of these bytes at 10 MB/s beyond the timeout.
  StallWatch(Clock::duration timeout, const std::vector<int64_t>& received_bytes);

  void Begin(Clock::time_point now);

  void Moved(int rank, Clock::time_point now) { workers_[rank].moved_at = now; }

  // step: of the exchange; 0: the worker computes.
  void Waits(int rank, int64_t step, Clock::time_point now);

  void Forwarding(int rank, bool forwarding, Clock::time_point now);

  Clock::duration ForwardedFor(int rank, Clock::time_point now) const;  // time of that since Begin

  // awaited: by rank. Empty if an awaited worker may still move.
  std::optional<Stall> Find(const std::vector<bool>& awaited, Clock::time_point now) const;

 private:
  struct Worker {
    Clock::duration slack{0};  // beyond the timeout, in the exchange
    Clock::time_point moved_at;
    int64_t waiting_step = 0;
    bool forwarding = false;
    Clock::time_point forwarding_since;
    Clock::duration forwarded{0};
  };

  const Clock::duration timeout_;
  std::vector<Worker> workers_;  // by rank
};

}  // namespace hilbert_ring::server
