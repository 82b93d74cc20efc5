// The end of a process that was told to stop, whatever still runs in it: a thread may wait for a
// file system that never answers, and would be waited for in its turn.
//
//   LastResort last_resort;                      // first, so that all the rest ends before it
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

  // Starts its thread, for there may be no thread to be had when it is needed.
  LastResort();
  // The process ends by itself.
  ~LastResort() = default;

  // Unless this is destroyed before, the process ends in so long: with a line in the log, the
  // status above, and no destructor.
  void EndIn(std::chrono::milliseconds limit);

 private:
  void Run(const std::stop_token& stop);

  Mutex mutex_;
  std::condition_variable_any due_is_set_;
  std::optional<Deadline> due_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
