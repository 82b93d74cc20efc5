// What a TCP connection over the loopback interface carries: the least time in which a job's
// tensors pass the socket between a client and a service on one host.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace hilbert_ring::bench {

// Returns when so many bytes have gone there and so many came back, both ways at once where both
// are wanted, 1 MiB at a time from and to memory that a processor's cache holds. Nothing is done
// with them: no checksum, no message, no copy but the socket's two. Errors follow errno; DATA_LOSS:
// fewer or more came.
absl::Status CarryOverLoopback(int64_t there, int64_t back);

}  // namespace hilbert_ring::bench
