// Whether a client keeps up, in one direction: rows that it sends, or outputs that it reads.
//
//   ClientPace pace(limits, "sent");
//   const Deadline due = pace.Due(now, 0);    // from here on the client is waited for
//   pace.Moved(now - began, bytes);           // it came
//   return pace.Late(now - began);            // it did not come by then
//
// Only time in which nothing but the client was waited for counts. Of that time a client may take
// what its bytes take at the least rate, and beyond it the idle timeout, once: what it falls behind
// adds up until it has caught up. So neither a client that is silent nor one that sends a row now
// and then keeps its workers for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

struct PaceLimits {
  std::chrono::milliseconds idle{300'000};
  int64_t bytes_per_second = 0;  // the least rate; 0: none, any progress counts
};

// Pure: it has no clock of its own. Not thread-safe.
class ClientPace {
 public:
  // what: "sent" or "read", for messages.
  ClientPace(const PaceLimits& limits, std::string what)
      : limits_(limits), what_(std::move(what)) {}

  // Until when the client is waited for that is waited for from `now` on, to take so many bytes; 0
  // where they are not known.
  Deadline Due(Clock::time_point now, int64_t bytes) const;

  // The client moved so many bytes after it was waited for so long.
  void Moved(Clock::duration waited, int64_t bytes);

  // Why a client that was waited for so long, until it was due, loses its job: DEADLINE_EXCEEDED,
  // as CLIENT_IDLE, naming its rate if it moved something in that time.
  absl::Status Late(Clock::duration waited) const;

 private:
  Clock::duration TimeOf(int64_t bytes) const;

  PaceLimits limits_;
  std::string what_;
  Clock::duration behind_{0};
  // Since it last was not behind:
  Clock::duration waited_{0};
  int64_t bytes_ = 0;
};

}  // namespace hilbert_ring::server
