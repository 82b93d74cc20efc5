// The speed of loopback TCP, a bound of a job's tensors on the socket to a service on one host.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace hilbert_ring::bench {

// Sends bytes both ways at once, in blocks of 1 MiB that a processor's cache holds. Only the socket
// copies them. Errors follow errno; DATA_LOSS: another number of bytes arrived.
absl::Status CarryOverLoopback(int64_t there, int64_t back);

}  // namespace hilbert_ring::bench
