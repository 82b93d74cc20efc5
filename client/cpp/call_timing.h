// Clock and randomness of a retried call. Tests replace them to avoid waiting.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace hilbert_ring::client {

struct CallTiming {
  std::function<absl::Time()> now;            // empty: SteadyNow
  std::function<void(absl::Duration)> sleep;  // empty: the thread sleeps
  std::function<double()> random;             // in [0, 1); empty: seeded by the system
};

struct CallRetry {
  absl::Status failure;
  int attempt = 0;      // of the next one: 2, 3, ...
  absl::Duration wait;  // least time before it
  bool away = false;    // the next attempt also waits for a connection
};

CallTiming WithDefaults(CallTiming timing);

}  // namespace hilbert_ring::client
