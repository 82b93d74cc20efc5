// Time that goes on evenly, whoever sets the machine's clock meanwhile.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace hilbert_ring::client {

// To be compared with another SteadyNow() of this process; its zero means nothing.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace hilbert_ring::client
