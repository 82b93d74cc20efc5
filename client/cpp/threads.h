// Threads of the client. A system that has none left says so by an exception, which would end the
// caller's process.
#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring::client {

// RESOURCE_EXHAUSTED (NO_THREADS) when the thread cannot be started.
absl::StatusOr<std::jthread> StartThread(std::function<void(const std::stop_token&)> body);

// NO_THREADS where none can be started at the moment. gRPC has threads of its own; without them a
// call may wait for ever, and its deadline does not pass.
absl::Status CheckThreads();

}  // namespace hilbert_ring::client
