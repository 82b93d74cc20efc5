// Stops a job. The first reason counts.
//
//   JobStop stop;
//   std::stop_callback cancel(stop.token(), [&] { context.TryCancel(); });
//   stop.Request(absl::AbortedError("worker 10.0.0.7:8101 was lost"));   // from any thread
//   return stop.why();
#pragma once

#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe.
class JobStop {
 public:
  void Request(absl::Status why) {
    {
      const MutexLock lock(mutex_);
      if (!why_.ok()) return;
      why_ = std::move(why);
    }
    source_.request_stop();
  }

  std::stop_token token() const { return source_.get_token(); }

  absl::Status why() const {  // OK without a stop
    const MutexLock lock(mutex_);
    return why_;
  }

 private:
  mutable Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  std::stop_source source_;
};

}  // namespace hilbert_ring::server
