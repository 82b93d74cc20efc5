// A steady clock, independent of the machine's time setting.
#pragma once

#include <chrono>
#include <ctime>

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace hilbert_ring::client {

// Comparable within this process only; its zero has no meaning.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// GrpcDeadline is for gRPC's calls and waits. gRPC converts a time of the machine's clock when the
// call begins. absl::Now() may then be seconds off, if the clock was set.
inline gpr_timespec GrpcDeadline(absl::Time steady) {
  if (steady == absl::InfiniteFuture()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const timespec time = absl::ToTimespec(steady);
  return {.tv_sec = time.tv_sec,
          .tv_nsec = static_cast<int32_t>(time.tv_nsec),
          .clock_type = GPR_CLOCK_MONOTONIC};
}

inline gpr_timespec GrpcDeadlineIn(absl::Duration left) { return GrpcDeadline(SteadyNow() + left); }

}  // namespace hilbert_ring::client
