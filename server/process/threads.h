// Threads of calls. A system that has none left says so by an exception, which would end the
// process.
#pragma once

#include <functional>
#include <system_error>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// RESOURCE_EXHAUSTED (NO_THREADS), for what the system says.
absl::Status NoThreads(const std::system_error& error);

// NoThreads when the thread cannot be started.
absl::StatusOr<std::thread> StartThread(std::function<void()> body);

using ThreadStarter = std::function<absl::StatusOr<std::thread>(std::function<void()> body)>;

}  // namespace hilbert_ring::server
