#include "client/cpp/cancel_watch.h"

#include <chrono>

#include "absl/base/thread_annotations.h"

namespace hilbert_ring::client {

void CancelWatch::Start() {
  if (cancelled_) thread_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
}

void CancelWatch::Watch(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!wake_.wait_for(
      lock, stop, std::chrono::milliseconds(100),
      [&stop]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop.stop_requested(); })) {
    if (!cancelled_()) continue;
    fired_ = true;
    context_.TryCancel();
    return;
  }
}

}  // namespace hilbert_ring::client
