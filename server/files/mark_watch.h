// What stands in the mark of a data root, looked at again and again: a folder comes and goes.
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
  // root: as this process sees it; empty: it has none, and sees no mark. answer_limit: of a look;
  // then no mark is seen until it gets its answer.
  MarkWatch(std::string root, std::chrono::milliseconds interval,
            std::chrono::milliseconds answer_limit = std::chrono::seconds(5));

  // Called by the thread where it sees something else than before; it must not call back. Null:
  // nobody is.
  void SetOnChange(std::function<void()> on_change);

  // Of which file in the root, as the coordinator says; looked at at once where it is another.
  void Look(const std::string& mark_file);

  std::string mark() const;  // empty: none

 private:
  void LookAgain();

  const std::string root_;
  const std::chrono::milliseconds answer_limit_;
  Mutex telling_ ABSL_ACQUIRED_BEFORE(mutex_);  // held while somebody is told
  std::function<void()> on_change_ ABSL_GUARDED_BY(telling_);
  mutable Mutex mutex_;
  std::string mark_file_ ABSL_GUARDED_BY(mutex_);
  std::string mark_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> looking_since_ ABSL_GUARDED_BY(mutex_);
  std::optional<IntervalThread>
      watch_;  // null where there is no root. Last: it uses all of the above
};

}  // namespace hilbert_ring::server
