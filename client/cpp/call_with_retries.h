// Makes a call until it is done or client/cpp/retry.h gives up. All retries of this client run
// here.
//
//   absl::Status made = CallWithRetries(connector, {
//       .policy = {.max_attempts = 10},
//       .timing = WithDefaults({}),
//       .make = [&](absl::Time deadline) -> std::optional<AttemptFailure> { ... }});
#pragma once

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/call_timing.h"
#include "client/cpp/connector.h"
#include "client/cpp/retry.h"

namespace hilbert_ring::client {

struct RetriedCall {
  RetryPolicy policy;
  CallTiming timing;                // from WithDefaults
  std::function<bool()> cancelled;  // as in JobOptions
  // Makes one attempt over connector.channel() with a deadline for GrpcDeadline. Returns nothing
  // when the call is done.
  std::function<std::optional<AttemptFailure>(absl::Time deadline)> make;
  // Returns whether a failure is final despite retry.h; may be empty.
  std::function<bool(const AttemptFailure&)> final;
  std::function<void(const CallRetry&)> tell;  // called before each wait; may be empty
  absl::Duration longest_attempt = absl::InfiniteDuration();
};

// Returns OK once an attempt is done. Otherwise returns the last error, with the number of attempts
// if above 1; CANCELLED: between two attempts. The connector keeps the last attempt's channel.
absl::Status CallWithRetries(Connector& connector, const RetriedCall& call);

}  // namespace hilbert_ring::client
