// SIGTERM and SIGINT, taken by one thread that waits for them instead of handlers.
//
//   BlockStopSignals();              // first in main(), so that every thread inherits the mask
//   ...
//   AwaitStopSignal(std::nullopt);
//   LimitStop(std::chrono::seconds(15));
#pragma once

#include <chrono>
#include <optional>

namespace hilbert_ring::server {

// Blocks SIGTERM and SIGINT in this thread and those it starts, and ignores SIGPIPE and
// SIGXFSZ.
void BlockStopSignals();

// In a child between fork and exec: takes signals as a new process does. Async-signal-safe.
void UnblockStopSignals();

// The signal, or nothing when `limit` passes first. Without a limit waits for one.
std::optional<int> AwaitStopSignal(std::optional<std::chrono::milliseconds> limit);

// Ends the process with this status when the limit has passed, whatever still runs in it: a thread
// may wait for a mount that hangs.
inline constexpr int kStopTimedOut = 4;
void LimitStop(std::chrono::milliseconds limit);

}  // namespace hilbert_ring::server
