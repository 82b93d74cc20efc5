// Whether a client keeps up in one direction: rows that it sends, or outputs that it reads.
//
//   const Deadline due = pace.Due(now, 0);    // the wait for the client begins
//   pace.Moved(now - began, bytes);           // it moved in time
//   return pace.Late(now - began);            // it did not
//
// Time counts only while the job waits for its client alone. A client may take the time of its
// bytes at the least rate plus the idle timeout once: delays add up until it has caught up.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

struct PaceLimits {
  std::chrono::milliseconds idle{300'000};
  int64_t bytes_per_second = 0;  // the least rate; 0: any progress counts
};

class ClientPace {  // not thread-safe
 public:
  ClientPace(const PaceLimits& limits, std::string what)
      : limits_(limits), what_(std::move(what)) {}

  // The end of a wait for `bytes` that begins now. bytes: 0 if unknown.
  Deadline Due(Clock::time_point now, int64_t bytes) const;

  void Moved(Clock::duration waited, int64_t bytes);

  // DEADLINE_EXCEEDED (CLIENT_IDLE) of a client that was waited for until it was due.
  absl::Status Late(Clock::duration waited) const;

 private:
  Clock::duration TimeOf(int64_t bytes) const;

  PaceLimits limits_;
  std::string what_;
  Clock::duration behind_{0};
  // Sums since the client was last on time:
  Clock::duration waited_{0};
  int64_t bytes_ = 0;
};

}  // namespace hilbert_ring::server
