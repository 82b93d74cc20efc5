// Progress of a call, updated by its sending and its receiving thread and reported as one.
#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "client/cpp/job_options.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::client {

class ProgressTeller {
 public:
  // The function may be empty. It must outlive the object.
  explicit ProgressTeller(const std::function<void(const JobProgress&)>& tell) : tell_(tell) {}

  void Reset(JobProgress progress) {
    const MutexLock lock(mutex_);
    progress_ = std::move(progress);
  }

  // Called by any thread. Calls change(JobProgress&), then reports to the caller.
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
