// A clock that moves only in sleep(), with fixed randomness.
#pragma once

#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/call_timing.h"

namespace hilbert_ring::client {

// Must outlive the calls that use timing().
struct ManualTiming {
  absl::Time now = absl::Now();
  double random = 0.5;
  std::vector<absl::Duration> slept;

  absl::Duration total() const {
    absl::Duration sum;
    for (const absl::Duration duration : slept) sum += duration;
    return sum;
  }

  CallTiming timing() {
    return {.now = [this] { return now; },
            .sleep =
                [this](absl::Duration duration) {
                  slept.push_back(duration);
                  now += duration;
                },
            .random = [this] { return random; }};
  }
};

}  // namespace hilbert_ring::client
