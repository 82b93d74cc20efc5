// Reads the mark of a data root at intervals, because a mount comes and goes.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {

// Thread-safe.
class MarkWatch {
 public:
  // root: empty without a data root. mark() is empty while a read takes longer than `answer_limit`.
  MarkWatch(std::string root, std::chrono::milliseconds interval,
            std::chrono::milliseconds answer_limit = std::chrono::seconds(5));

  // The thread calls it after the mark changes; it must not call back. May be null.
  void SetOnChange(std::function<void()> on_change);

  // Sets the mark file's name, and reads a new one at once.
  void Look(const std::string& mark_file);

  std::string mark() const;

 private:
  void LookAgain();

  const std::string root_;
  const std::chrono::milliseconds answer_limit_;
  Mutex telling_ ABSL_ACQUIRED_BEFORE(mutex_);  // held during on_change_
  std::function<void()> on_change_ ABSL_GUARDED_BY(telling_);
  mutable Mutex mutex_;
  std::string mark_file_ ABSL_GUARDED_BY(mutex_);
  std::string mark_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> looking_since_ ABSL_GUARDED_BY(mutex_);
  std::optional<IntervalThread> watch_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
