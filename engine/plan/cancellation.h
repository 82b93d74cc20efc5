// Planning a pattern of many parts takes seconds: whoever asked may have left.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace hilbert_ring {

// Asks now and then, and remembers the answer. Not thread-safe.
class Cancellation {
 public:
  // cancelled: null, or asked from the planning thread; must not block.
  explicit Cancellation(std::function<bool()> cancelled) : cancelled_(std::move(cancelled)) {}

  // After one more step of work, of at most some microseconds.
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
