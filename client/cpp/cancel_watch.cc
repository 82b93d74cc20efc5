#include "client/cpp/cancel_watch.h"

#include <chrono>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::client {

CancelWatch::CancelWatch(const std::function<bool()>& cancelled, grpc::ClientContext& context) {
  if (!cancelled) return;
  thread_ = std::jthread([this, &cancelled, &context](std::stop_token stop) {
    MutexLock lock(mutex_);
    while (!wake_.wait_for(
        lock, stop, std::chrono::milliseconds(100),
        [&stop]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop.stop_requested(); })) {
      if (!cancelled()) continue;
      fired_ = true;
      context.TryCancel();
      return;
    }
  });
}

}  // namespace hilbert_ring::client
