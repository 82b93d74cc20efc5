// A clock and its waits. Tests pass a source whose time they move.
#pragma once

#include <condition_variable>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Thread-safe.
class TimeSource {
 public:
  virtual ~TimeSource() = default;

  virtual Clock::time_point Now() const = 0;

  // Waits until `done`, the stop or the deadline, and returns `done`.
  virtual bool WaitUntil(std::condition_variable_any& changed, MutexLock& lock,
                         const std::stop_token& stop, Deadline deadline,
                         absl::FunctionRef<bool()> done) const = 0;

  void AwaitStop(const std::stop_token& stop, Deadline deadline) const;
};

const TimeSource& SystemTime();

}  // namespace hilbert_ring::server
