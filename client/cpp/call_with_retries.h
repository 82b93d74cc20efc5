// Makes a call until it is done, or client/cpp/retry.h says that it has failed: the one loop in
// which this client makes a call again, whichever call it is.
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
  std::function<bool()> cancelled;  // as of JobOptions
  // Makes one attempt over connector.channel(). Returns nothing when the call is done. deadline:
  // for GrpcDeadline.
  std::function<std::optional<AttemptFailure>(absl::Time deadline)> make;
  // Whether no other attempt follows, whatever retry.h says; may be empty.
  std::function<bool(const AttemptFailure&)> final;
  std::function<void(const CallRetry&)> tell;  // called before each wait; may be empty
  absl::Duration longest_attempt = absl::InfiniteDuration();
};

// OK once an attempt is done. Else the last one's error, and how many attempts there were, if there
// were several; CANCELLED between two of them. The connector keeps the last attempt's channel.
absl::Status CallWithRetries(Connector& connector, const RetriedCall& call);

}  // namespace hilbert_ring::client
