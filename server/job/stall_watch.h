// Which worker of a run holds the others up. It is told what the streams say and what time it is,
// and neither waits nor locks.
//
// A worker may be slow, or wait in the exchange for one that is; that none of those that are waited
// for moves is a stall, and the culprit is the one that waits for nobody, or in the earliest step.
// A worker whose outputs wait for the client does not count.
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
    int64_t waiting_step = 0;  // of the exchange; 0: it waits for nobody
  };

  // received_bytes: by rank, what a worker receives in all. One that waits in the exchange tells
  // nothing meanwhile: it gets the time that these take over a slow network, 10 MB/s, beyond the
  // timeout.
  StallWatch(Clock::duration timeout, const std::vector<int64_t>& received_bytes);

  // A wait for all workers begins.
  void Begin(Clock::time_point now);

  void Moved(int rank, Clock::time_point now) { workers_[rank].moved_at = now; }

  // It computes, or waits for the transfers of this step of the exchange.
  void Waits(int rank, int64_t step, Clock::time_point now);

  // Its outputs are handed to the client, which may be slow, from here on, or are no more.
  void Forwarding(int rank, bool forwarding, Clock::time_point now);

  // How long its outputs have been handed on since the wait began.
  Clock::duration ForwardedFor(int rank, Clock::time_point now) const;

  // awaited: by rank. Nothing where one of them may still move.
  std::optional<Stall> Find(const std::vector<bool>& awaited, Clock::time_point now) const;

 private:
  struct Worker {
    Clock::duration slack{0};  // beyond the timeout, while it waits in the exchange
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
