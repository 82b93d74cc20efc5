// Whether a call was cancelled, cheap enough to ask between tiles.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "server/process/deadline.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// Thread-safe. grpc::ServerContext::IsCancelled() makes a system call, and waits while another
// thread polls: 25 us on an AMD EPYC (2 cores), a fifth of the compute of 64 tokens. All threads of
// a run together therefore call it once in kInterval.
class RunCancellation {
 public:
  static constexpr std::chrono::milliseconds kInterval{10};

  // ask: thread-safe. `time` outlives it.
  explicit RunCancellation(std::function<bool()> ask, const TimeSource& time = SystemTime())
      : ask_(std::move(ask)), time_(time), due_(time.Now() + kInterval) {}

  bool IsCancelled() const {
    if (cancelled_) return true;
    const Clock::time_point now = time_.Now();
    Deadline due = due_;
    if (now < due || !due_.compare_exchange_strong(due, now + kInterval)) return cancelled_;
    if (ask_()) cancelled_ = true;
    return cancelled_;
  }

 private:
  const std::function<bool()> ask_;
  const TimeSource& time_;
  mutable std::atomic<Deadline> due_;  // of the next call
  mutable std::atomic<bool> cancelled_ = false;
};

}  // namespace hilbert_ring::server
