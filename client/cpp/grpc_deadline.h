// When gRPC ends a call or a wait, by its steady clock, which is that of SteadyNow().
#pragma once

#include <ctime>

#include "absl/time/time.h"
#include "client/cpp/steady_clock.h"
#include "grpc/support/time.h"

namespace hilbert_ring::client {

// A time of the machine's clock would do where nobody sets it: gRPC converts it when the call
// begins, and absl::Now() may be seconds behind a clock that was set.
inline gpr_timespec GrpcDeadline(absl::Time steady) {
  if (steady == absl::InfiniteFuture()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const timespec time = absl::ToTimespec(steady);
  return {.tv_sec = time.tv_sec,
          .tv_nsec = static_cast<int32_t>(time.tv_nsec),
          .clock_type = GPR_CLOCK_MONOTONIC};
}

inline gpr_timespec GrpcDeadlineIn(absl::Duration left) { return GrpcDeadline(SteadyNow() + left); }

}  // namespace hilbert_ring::client
