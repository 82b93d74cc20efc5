// Measures loopback TCP, which bounds the speed of sending tensors to a service on the same host.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace hilbert_ring::bench {

// Sends `there` and `back` bytes at the same time in opposite directions. Blocks of 1 MiB fit a
// processor's cache, so only the socket's copies cost time. Errors follow errno; DATA_LOSS: another
// number of bytes arrived.
absl::Status CarryOverLoopback(int64_t there, int64_t back);

}  // namespace hilbert_ring::bench
