// Peers can cause any number of refusals: each is counted by whoever refuses, and the log gets one
// line a minute.
//
//   if (const auto refused = log.Note(Clock::now())) {
//     spdlog::warn("... (refused since the last such line: {})", *refused);
//   }
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/mutex.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Thread-safe.
class RefusalLog {
 public:
  // One more. How many there were since the last line, where a line is to be written now.
  std::optional<int64_t> Note(Clock::time_point now);

 private:
  Mutex mutex_;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Clock::time_point> next_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
