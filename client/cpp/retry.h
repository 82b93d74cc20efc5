// Whether a call that failed is made again, and when: DecideRetry. CallWithRetries
// (client/cpp/call_with_retries.h) does what it says.
//
// - UNAVAILABLE (no coordinator, it starts, drains or stops, no worker, a connection lost):
//   backoff, then as soon as there is a connection.
// - ABORTED with reason WORKER_LOST: backoff.
// - RESOURCE_EXHAUSTED with a retry-after: the retry-after and up to a quarter more. Of the
// service's
//   transport, which has no reason: backoff.
// - ALREADY_EXISTS after an UNAVAILABLE (the service has not noticed that the connection is lost):
//   backoff.
// - DATA_LOSS found in the output by the client: backoff, twice at most.
//
// Anything else is final, ABORTED with ATTEMPT_FENCED too: a newer attempt has the job. A
// retry-after replaces the backoff with every code; with one below 50 ms the wait is no shorter
// than the backoff; one that is negative or no number means that the service does not want another
// attempt. Backoff is random between 0 and a limit that doubles from 100 ms to 5 s (UNAVAILABLE:
// 0.4 s), so that the clients of a service that was gone do not come back at once.
//
// Attempts are bounded by their number, by the deadline of the call, and by the time that an outage
// (UNAVAILABLE without a retry-after) may take.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"

namespace hilbert_ring::client {

// How an attempt failed, as far as another one depends on it.
struct AttemptFailure {
  absl::Status status;
  bool admitted = false;                   // the service took the job
  bool output_damaged = false;             // found by the client: corrupt, repeated or missing rows
  std::optional<std::string> retry_after;  // grpc-retry-pushback-ms as it came, if it did
};

// Of a call that has ended. Several values are joined by commas, which make no number.
std::optional<std::string> RetryAfterOf(const grpc::ClientContext& context);

// What bounds the attempts of a call.
struct RetryPolicy {
  // 1: a failure is final. Attempts that find the service away do not count; with a deadline those
  // that find it full do not count either.
  int max_attempts = std::numeric_limits<int>::max();
  absl::Duration deadline = absl::InfiniteDuration();  // as messages tell it
  absl::Time end = absl::InfiniteFuture();             // when it passes
  // Of one outage. Not given: until the deadline, or kOutageTimeout where there is none.
  std::optional<absl::Duration> outage_timeout;
};

// What the failures of a call up to now have come to.
struct RetryHistory {
  int attempts = 0;                                // that failed
  int counted = 0;                                 // of them, that max_attempts bounds
  int backoffs = 0;                                // in a row
  int damaged_outputs = 0;                         // attempts that ended so
  bool connection_lost = false;                    // by one of them
  absl::Time outage_end = absl::InfiniteFuture();  // finite: the service is away
};

struct RetryDecision {
  RetryHistory history;                // the failure included
  std::optional<absl::Duration> wait;  // before another attempt; nothing: none follows
  absl::Status error;                  // the call's, where none follows
};

// random: in [0, 1), drawn for this failure.
RetryDecision DecideRetry(const RetryPolicy& policy, RetryHistory history,
                          const AttemptFailure& failure, absl::Time now, double random);

// When the deadline, or the time of the outage, is over.
absl::Time RetryEnd(const RetryPolicy& policy, const RetryHistory& history);

// The error of a call whose next attempt would start after RetryEnd: in `wait`, or, where that is
// infinite, because there was no connection until then.
absl::Status TooLate(const RetryPolicy& policy, const RetryHistory& history,
                     const absl::Status& failure, absl::Time now, absl::Duration wait);

// "1 attempt", "2 attempts".
std::string AttemptsMade(const RetryHistory& history);

}  // namespace hilbert_ring::client
