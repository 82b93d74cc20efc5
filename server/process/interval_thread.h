// A thread that calls a function at intervals.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe.
class IntervalThread {
 public:
  // Calls `look` an interval after the start and after each call. The token requests the end.
  IntervalThread(std::chrono::milliseconds interval,
                 std::function<void(const std::stop_token&)> look);
  ~IntervalThread() = default;  // waits for a call under way

  void Wake();  // the next call follows at once

 private:
  void Run(const std::stop_token& stop);

  const std::chrono::milliseconds interval_;
  const std::function<void(const std::stop_token&)> look_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  bool now_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
