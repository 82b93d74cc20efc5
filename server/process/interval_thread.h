// A thread that looks at something again and again: a file that changes, a folder that comes and
// goes, who has been silent.
//
//   watch_.emplace(std::chrono::seconds(1), [this](const std::stop_token&) { Look(); });
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
  // Calls `look` when the interval has passed, and again so long after each call. The token says
  // when the thread is to end.
  IntervalThread(std::chrono::milliseconds interval,
                 std::function<void(const std::stop_token&)> look);
  // Waits for a call that has begun.
  ~IntervalThread() = default;

  // The next call is now, or when the one that runs has ended.
  void Wake();

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
