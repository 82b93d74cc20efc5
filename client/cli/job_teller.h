// Reports a job's progress and retries on stderr: a redrawn line on a terminal, otherwise a line
// every ten seconds.
#pragma once

#include <condition_variable>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/progress_line.h"
#include "client/cpp/job_options.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::cli {

class JobTeller {
 public:
  explicit JobTeller(const GlobalOptions& global);
  ~JobTeller();

  // Called by one thread at a time.
  void Note(const client::JobProgress& progress);
  int attempts() const { return attempts_; }

 private:
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const std::stop_token& stop);
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GlobalOptions& global_;
  const bool terminal_;
  RetryTeller retries_;
  int attempts_ = 1;
  Mutex mutex_;
  std::condition_variable_any wake_;
  ProgressLine line_ ABSL_GUARDED_BY(mutex_);
  bool noted_ ABSL_GUARDED_BY(mutex_) = false;
  bool drawn_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last, because it uses the members above
};

}  // namespace hilbert_ring::cli
