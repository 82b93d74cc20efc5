// What the sending and the receiving thread of a call know of its progress, told as one.
#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "client/cpp/job_options.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::client {

class ProgressTeller {
 public:
  // tell: may be empty; must outlive the object.
  explicit ProgressTeller(const std::function<void(const JobProgress&)>& tell) : tell_(tell) {}

  // A new attempt: all starts afresh.
  void Reset(JobProgress progress) {
    const MutexLock lock(mutex_);
    progress_ = std::move(progress);
  }

  // Any thread. change(JobProgress&) comes first, then the caller is told.
  template <typename Change>
  void Update(Change change) {
    if (!tell_) return;
    const MutexLock lock(mutex_);
    change(progress_);
    tell_(progress_);
  }

 private:
  const std::function<void(const JobProgress&)>& tell_;
  Mutex mutex_;
  JobProgress progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::client
