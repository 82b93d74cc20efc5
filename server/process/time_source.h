// What time it is, and waits that end by it. The processes take SystemTime(); a test passes a
// source whose time it moves itself.
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

  // As std::condition_variable_any::wait_until: until `done`, the stop or the deadline; what `done`
  // says then.
  virtual bool WaitUntil(std::condition_variable_any& changed, MutexLock& lock,
                         const std::stop_token& stop, Deadline deadline,
                         absl::FunctionRef<bool()> done) const = 0;

  // Until the stop or the deadline.
  void AwaitStop(const std::stop_token& stop, Deadline deadline) const;
};

// The system's monotonic clock; it has no state.
const TimeSource& SystemTime();

}  // namespace hilbert_ring::server
