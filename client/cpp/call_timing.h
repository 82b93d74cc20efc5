// Time and chance of a call that is tried again. Tests bring their own, so that they need not wait.
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace hilbert_ring::client {

struct CallTiming {
  std::function<absl::Time()> now;            // empty: SteadyNow
  std::function<void(absl::Duration)> sleep;  // empty: the thread sleeps
  std::function<double()> random;             // in [0, 1); empty: drawn from a seed of the system
};

// The same, with the system's where one is empty.
CallTiming WithDefaults(CallTiming timing);

}  // namespace hilbert_ring::client
