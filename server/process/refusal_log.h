// Limits log lines of refusals, which peers can cause in any number, to one a minute.
//
//   if (const auto refused = log.Note(Clock::now())) {
//     spdlog::warn("... (refused since the last such line: {})", *refused);
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "engine/base/mutex.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Thread-safe.
class RefusalLog {
 public:
  // Counts a refusal. Returns the number since the last line if a line is due.
  std::optional<int64_t> Note(Clock::time_point now) {
    const MutexLock lock(mutex_);
    ++refused_;
    if (next_.has_value() && now < *next_) return std::nullopt;
    next_ = now + std::chrono::minutes(1);
    return std::exchange(refused_, 0);
  }

 private:
  Mutex mutex_;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Clock::time_point> next_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
