// Time and chance of a call that is tried again. Tests bring their own, so that they need not wait.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace hilbert_ring::client {

struct CallTiming {
  std::function<absl::Time()> now;            // empty: SteadyNow
  std::function<void(absl::Duration)> sleep;  // empty: the thread sleeps
  std::function<double()> random;             // in [0, 1); empty: drawn from a seed of the system
};

// A call that failed, and that is made again.
struct CallRetry {
  absl::Status failure;
  int attempt = 0;      // that follows: 2, 3, ...
  absl::Duration wait;  // until then, at least
  bool away = false;    // and until there is a connection
};

// The timing, with the system's where a function is empty.
CallTiming WithDefaults(CallTiming timing);

}  // namespace hilbert_ring::client
