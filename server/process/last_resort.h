// The end of a process that was told to stop, whatever still runs in it: a thread may wait for a
// file system that never answers, and would be waited for in its turn.
//
//   LastResort last_resort;                      // first, so that all the rest ends before it
//   ...
//   last_resort.Started();                       // AwaitStopSignal comes next
//   ...
//   last_resort.EndIn(std::chrono::seconds(5));  // when there is nothing to lose any more
#pragma once

#include <chrono>
#include <condition_variable>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Thread-safe.
class LastResort {
 public:
  static constexpr int kExitStatus = 4;

  // Starts its thread, for there may be no thread to be had when it is needed. Until Started() a
  // stop signal that nobody has taken for `unheard` ends the process likewise.
  explicit LastResort(std::chrono::milliseconds unheard = std::chrono::seconds(10));
  // The process ends by itself.
  ~LastResort() = default;

  void Started();

  // Unless this is destroyed before, the process ends in so long: with a line in the log, the
  // status above, and no destructor.
  void EndIn(std::chrono::milliseconds limit);

 private:
  void Run(const std::stop_token& stop);
  void AwaitDue(const std::stop_token& stop);

  const std::chrono::milliseconds unheard_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Deadline> due_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
