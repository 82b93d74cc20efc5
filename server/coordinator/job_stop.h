// Why a job must stop: the first reason counts, whoever gives it.
//
//   JobStop stop;
//   std::stop_callback cancel(stop.token(), [&] { context.TryCancel(); });
//   stop.Request(absl::AbortedError("worker 10.0.0.7:8101 was lost"));   // from any thread
//   return stop.why();
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// Thread-safe.
class JobStop {
 public:
  // `why` is not OK.
  void Request(absl::Status why) {
    {
      const std::lock_guard lock(mutex_);
      if (!why_.ok()) return;
      why_ = std::move(why);
    }
    source_.request_stop();
  }

  std::stop_token token() const { return source_.get_token(); }

  // Waits so long, or until a stop is requested; as why().
  absl::Status AwaitFor(std::chrono::milliseconds time) const {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, token(), time, [] { return false; });
    return why();
  }

  // OK until a stop is requested.
  absl::Status why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  absl::Status why_;  // guarded by mutex_
  std::stop_source source_;
};

}  // namespace hilbert_ring::server
