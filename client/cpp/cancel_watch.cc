#include "client/cpp/cancel_watch.h"

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "client/cpp/threads.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {

absl::Status CancelWatch::Start() {
  if (!cancelled_) return absl::OkStatus();
  ASSIGN_OR_RETURN(thread_, StartThread([this](const std::stop_token& stop) { Watch(stop); }));
  return absl::OkStatus();
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
