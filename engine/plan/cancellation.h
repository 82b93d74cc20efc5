// Ends the planning of a large pattern, which takes seconds, when its caller has left.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace hilbert_ring {

// Polls `cancelled` now and then, and keeps a true answer. Not thread-safe.
class Cancellation {
 public:
  // cancelled: may be null; called in the planning thread; must not block.
  explicit Cancellation(std::function<bool()> cancelled) : cancelled_(std::move(cancelled)) {}

  // Call after each step of at most some microseconds.
  bool Step() {
    if (cancelled_ == nullptr || yes_ || ++steps_ % kSteps != 0) return yes_;
    return Ask();
  }

  bool Ask() {
    yes_ = yes_ || (cancelled_ != nullptr && cancelled_());
    return yes_;
  }

 private:
  static constexpr int64_t kSteps = 1024;

  const std::function<bool()> cancelled_;
  int64_t steps_ = 0;
  bool yes_ = false;
};

}  // namespace hilbert_ring
