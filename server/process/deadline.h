// The clock of waits.
#pragma once

#include <chrono>

namespace hilbert_ring::server {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline constexpr Clock::duration kAnyPatience = Clock::duration::max();  // for a client

inline double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

inline std::chrono::system_clock::time_point OnSystemClock(Deadline deadline) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline - Clock::now());
}

}  // namespace hilbert_ring::server
