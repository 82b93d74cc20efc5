// Tells of a job's progress on stderr: on a terminal a line that is drawn again and again,
// elsewhere a line every ten seconds, so that a log says that the job lives.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/progress_line.h"
#include "client/cpp/attend.h"

namespace hilbert_ring::cli {

// Thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(const GlobalOptions& global);
  ~ProgressBar();

  void Note(const client::AttendProgress& progress);

  // Takes the terminal's line away while `print` writes others.
  template <typename Print>
  void Interrupt(Print print) {
    const std::lock_guard lock(mutex_);
    Clear();
    print();
  }

 private:
  void Clear();
  void Tell(const std::stop_token& stop);
  void Draw();

  const GlobalOptions& global_;
  const bool terminal_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  ProgressLine line_;    // guarded by mutex_
  bool noted_ = false;   // guarded by mutex_
  bool drawn_ = false;   // guarded by mutex_
  std::jthread thread_;  // last: it uses all above
};

}  // namespace hilbert_ring::cli
