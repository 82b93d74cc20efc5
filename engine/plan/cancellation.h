// Ends the planning of a large pattern when its caller has left. Planning may take seconds.
//
//   Cancellation cancellation(cancelled);
//   while (...) {
//     if (cancellation.Step()) return;          // cheap: asks at each 1024th call
//   }
//   if (cancellation.Ask()) return absl::CancelledError("...");
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace hilbert_ring {

// Keeps a true answer of `cancelled`, and asks no more. Not thread-safe.
class Cancellation {
 public:
  // cancelled: may be null; called in the planning thread; must not block.
  explicit Cancellation(std::function<bool()> cancelled) : cancelled_(std::move(cancelled)) {}

  // Called after each step of planning. Steps take some microseconds at most, so milliseconds pass
  // between two questions.
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
