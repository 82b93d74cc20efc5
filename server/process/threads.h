// Threads of calls. A system that has none left says so by an exception, which would end the
// process.
#pragma once

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// RESOURCE_EXHAUSTED (NO_THREADS) when the thread cannot be started.
absl::StatusOr<std::thread> StartThread(std::function<void()> body);

using ThreadStarter = std::function<absl::StatusOr<std::thread>(std::function<void()> body)>;

}  // namespace hilbert_ring::server
