// One line on a terminal that says how far a job is.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "client/cpp/attend.h"

namespace hilbert_ring::cli {

// Draws on stderr where that is a terminal, and nothing elsewhere. Show may be called by any
// thread, one at a time.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar() { Clear(); }

  void Show(const client::AttendProgress& progress);

  // Takes the line away.
  void Clear();

 private:
  enum class Stage { kQueue, kSend, kCompute, kReceive };

  const bool enabled_;
  bool drawn_ = false;
  Stage stage_ = Stage::kQueue;
  absl::Time stage_begin_;
  absl::Time last_drawn_;
};

// "[#####               ]  25 %  send  120,000 tokens/s".
std::string FormatProgress(std::string_view stage, double fraction, double tokens_per_second);

}  // namespace hilbert_ring::cli
