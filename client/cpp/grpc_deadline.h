// Deadlines of gRPC calls and waits by its steady clock, which is that of SteadyNow().
#pragma once

#include <ctime>

#include "absl/time/time.h"
#include "client/cpp/steady_clock.h"
#include "grpc/support/time.h"

namespace hilbert_ring::client {

// gRPC converts a time of the machine's clock when the call begins. absl::Now() may then be seconds
// off, if the clock was set.
inline gpr_timespec GrpcDeadline(absl::Time steady) {
  if (steady == absl::InfiniteFuture()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const timespec time = absl::ToTimespec(steady);
  return {.tv_sec = time.tv_sec,
          .tv_nsec = static_cast<int32_t>(time.tv_nsec),
          .clock_type = GPR_CLOCK_MONOTONIC};
}

inline gpr_timespec GrpcDeadlineIn(absl::Duration left) { return GrpcDeadline(SteadyNow() + left); }

}  // namespace hilbert_ring::client
