// Shows a job's progress on stderr: a redrawn line on a terminal, otherwise a line every ten
// seconds.
//
//   ProgressBar bar(global);                      // its thread draws
//   bar.Note(progress);                           // from any thread
//   bar.Interrupt([&] { PrintWarning(global, warning); });
#pragma once

#include <condition_variable>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/progress_line.h"
#include "client/cpp/attend.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::cli {

// Thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(const GlobalOptions& global);
  ~ProgressBar();

  void Note(const client::AttendProgress& progress);

  // Clears the line, then calls `print` under the lock, so that no line is drawn into its output.
  template <typename Print>
  void Interrupt(Print print) {
    const MutexLock lock(mutex_);
    Clear();
    print();
  }

 private:
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const std::stop_token& stop);
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GlobalOptions& global_;
  const bool terminal_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  ProgressLine line_ ABSL_GUARDED_BY(mutex_);
  bool noted_ ABSL_GUARDED_BY(mutex_) = false;
  bool drawn_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last, because it uses the members above
};

}  // namespace hilbert_ring::cli
