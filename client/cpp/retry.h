// CallWithRetries makes a call until it is done or DecideRetry gives up. All retries of this client
// run here.
//
//   absl::Status made = CallWithRetries(connector, {
//       .policy = {.max_attempts = 10},
//       .timing = WithDefaults({}),
//       .make = [&](absl::Time deadline) -> std::optional<AttemptFailure> { ... }});
//
// - UNAVAILABLE (the service is unreachable, starts, drains, stops or has no worker): backoff, then
//   as soon as there is a connection.
// - ABORTED with reason WORKER_LOST: backoff.
// - RESOURCE_EXHAUSTED with a retry-after: the retry-after and up to a quarter more.
// - RESOURCE_EXHAUSTED without a reason, which comes from the transport: backoff.
// - ALREADY_EXISTS after an UNAVAILABLE (the service has not noticed the lost connection): backoff.
// - DATA_LOSS found in the output by the client: backoff, twice at most.
//
// Other errors are final, also ABORTED with ATTEMPT_FENCED: a newer attempt has the job. A
// retry-after replaces the backoff with every code. With a retry-after below 50 ms the wait is at
// least the backoff. A negative or malformed retry-after forbids another attempt. Backoff is random
// between 0 and a limit that doubles from 100 ms to 5 s (UNAVAILABLE: 0.4 s). Clients therefore do
// not all return at once after an outage.
//
// The number of attempts, the call's deadline and the time of an outage (UNAVAILABLE without a
// retry-after) bound the attempts.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/call_timing.h"
#include "client/cpp/connector.h"
#include "grpcpp/client_context.h"

namespace hilbert_ring::client {

struct AttemptFailure {
  absl::Status status;
  bool admitted = false;                   // by the service
  bool output_damaged = false;             // the client found corrupt, repeated or missing rows
  std::optional<std::string> retry_after;  // of the call's trailing metadata (kRetryAfterKey)
};

// Reads the retry-after of a call that has ended.
std::optional<std::string> RetryAfterOf(const grpc::ClientContext& context);

struct RetryPolicy {
  // Equals JobOptions::max_attempts.
  int max_attempts = std::numeric_limits<int>::max();
  absl::Duration deadline = absl::InfiniteDuration();  // for messages
  absl::Time end = absl::InfiniteFuture();             // time at which the deadline passes
  // Equals JobOptions::outage_timeout.
  std::optional<absl::Duration> outage_timeout;
};

struct RetryHistory {
  int attempts = 0;
  int counted = 0;                                 // of them, counted by max_attempts
  int backoffs = 0;                                // consecutive
  int damaged_outputs = 0;                         // attempts that ended with damaged output
  bool connection_lost = false;                    // in any of them
  absl::Time outage_end = absl::InfiniteFuture();  // finite: the service is away
};

struct RetryDecision {
  RetryHistory history;                // the failure included
  std::optional<absl::Duration> wait;  // before another attempt; nothing: the failure is final
  absl::Status error;                  // of the call, if the failure is final
};

// random: in [0, 1), drawn for this failure.
RetryDecision DecideRetry(const RetryPolicy& policy, RetryHistory history,
                          const AttemptFailure& failure, absl::Time now, double random);

struct RetriedCall {
  RetryPolicy policy;
  CallTiming timing;                // from WithDefaults
  std::function<bool()> cancelled;  // as in JobOptions
  // Makes one attempt over connector.channel() with a deadline for GrpcDeadline. Returns nothing
  // when the call is done.
  std::function<std::optional<AttemptFailure>(absl::Time deadline)> make;
  // Returns whether a failure is final despite DecideRetry; may be empty.
  std::function<bool(const AttemptFailure&)> final;
  std::function<void(const CallRetry&)> tell;  // called before each wait; may be empty
  absl::Duration longest_attempt = absl::InfiniteDuration();
};

// Returns OK once an attempt is done. Otherwise returns the last error, with the number of attempts
// if above 1; CANCELLED: between two attempts. The connector keeps the last attempt's channel.
absl::Status CallWithRetries(Connector& connector, const RetriedCall& call);

}  // namespace hilbert_ring::client
