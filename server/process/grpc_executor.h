// The threads on which gRPC (1.51) runs what its own locks and pollers must not wait for: ends and
// cancellations of calls, and writes of busy connections.
//
//   RETURN_IF_ERROR(StartGrpcExecutor());  // before the first server
//
// Left to itself it starts each when there is much to do. One that could not be started then counts
// as started all the same: what it is given is never run, for as long as the process lives. Calls
// on connections of which that was something never end, and neither does the server.
#pragma once

#include "absl/status/status.h"

namespace hilbert_ring::server {

// Starts all that there may ever be, two for each processor: once in a process, which keeps gRPC
// from then on. NoThreads where one of them cannot be started; the process cannot serve then.
// Thread-safe. As if there were 192 processors, the 384 threads took 5 MB of a coordinator and
// started within 0.1 s (an Intel Xeon of two that compiled beside).
absl::Status StartGrpcExecutor();

}  // namespace hilbert_ring::server
