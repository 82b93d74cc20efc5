// A steady clock, independent of the machine's time setting.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace hilbert_ring::client {

// Comparable within this process only; its zero has no meaning.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace hilbert_ring::client
