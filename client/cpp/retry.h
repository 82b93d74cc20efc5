// When a job that failed is tried again, and how long the client waits before.
//
// - UNAVAILABLE (no coordinator, it starts, drains or stops, no worker, a connection lost):
//   backoff, then as soon as there is a connection.
// - ABORTED with reason WORKER_LOST: backoff.
// - RESOURCE_EXHAUSTED with a pushback: the pushback and up to a quarter more. Of the service's
//   transport, which has no reason: backoff.
// - ALREADY_EXISTS after an UNAVAILABLE (the service has not noticed that the connection is lost):
//   backoff.
// - DATA_LOSS found in the output by the client: backoff, twice at most.
//
// Anything else is final, ABORTED with ATTEMPT_FENCED too: a newer attempt has the job. A pushback
// replaces the backoff with every code; with one below 50 ms the wait is no shorter than the
// backoff; one that is negative or no number means that the service does not want another attempt.
// Backoff is random between 0 and a limit that doubles from 100 ms to 5 s (UNAVAILABLE: 0.4 s), so
// that the clients of a service that was gone do not come back at once.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"

namespace hilbert_ring::client {

// How an attempt failed, as far as another one depends on it.
struct AttemptFailure {
  absl::Status status;
  bool admitted = false;                // the service took the job
  bool output_damaged = false;          // found by the client: corrupt, repeated or missing rows
  std::optional<std::string> pushback;  // grpc-retry-pushback-ms as it came, if it did
};

// Of a call that has ended. Several values are joined by commas, which make no number.
std::optional<std::string> PushbackOf(const grpc::ClientContext& context);

class RetrySchedule {
 public:
  // random: in [0, 1).
  explicit RetrySchedule(std::function<double()> random) : random_(std::move(random)) {}

  // How long to wait before the next attempt; nothing when there must be none. Call once for each
  // failure, in their order.
  std::optional<absl::Duration> WaitAfter(const AttemptFailure& failure);

 private:
  bool MayHelp(const AttemptFailure& failure);
  absl::Duration Backoff(absl::Duration longest);

  std::function<double()> random_;
  bool connection_lost_ = false;  // by an attempt before
  int damaged_outputs_ = 0;       // attempts that ended so
  int backoffs_ = 0;              // in a row
};

}  // namespace hilbert_ring::client
