// SIGTERM and SIGINT without handlers: a thread waits until they come.
//
//   BlockStopSignals();              // first in main(), so that every thread inherits the mask
//   AwaitStopSignal(std::nullopt);
//   LimitStop(std::chrono::seconds(15));
#pragma once

#include <chrono>
#include <optional>

namespace hilbert_ring::server {

// Blocks SIGTERM and SIGINT in this thread and its later threads, and ignores SIGPIPE and SIGXFSZ.
void BlockStopSignals();

// Restores signals in a child between fork and exec. Async-signal-safe.
void UnblockStopSignals();

std::optional<int> AwaitStopSignal(std::optional<std::chrono::milliseconds> limit);

inline constexpr int kStopTimedOut = 4;  // exit status
// Ends the process after the limit, because a thread may wait for a mount that hangs.
void LimitStop(std::chrono::milliseconds limit);

}  // namespace hilbert_ring::server
