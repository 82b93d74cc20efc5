// The speed of a TCP connection over the loopback interface: a lower bound of the time in which a
// job's tensors pass the socket between a client and a service on one host.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace hilbert_ring::bench {

// Sends `there` bytes one way and `back` bytes the other, both at once, in blocks of 1 MiB that a
// processor's cache holds. Only the socket copies them. Errors follow errno; DATA_LOSS: another
// number of bytes arrived.
absl::Status CarryOverLoopback(int64_t there, int64_t back);

}  // namespace hilbert_ring::bench
