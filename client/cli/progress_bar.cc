#include "client/cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/table.h"

namespace hilbert_ring::cli {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);

}  // namespace

ProgressBar::ProgressBar()
    : enabled_(isatty(STDERR_FILENO) == 1),
      stage_begin_(absl::Now()),
      last_drawn_(absl::InfinitePast()) {}

void ProgressBar::Show(const client::AttendProgress& progress) {
  if (!enabled_) return;
  const absl::Time now = absl::Now();
  Stage stage = Stage::kQueue;
  std::string_view name = "queue";
  double fraction = 0;
  if (progress.rows_placed > 0) {
    stage = Stage::kReceive;
    name = "receive";
    fraction = static_cast<double>(progress.rows_placed) / static_cast<double>(progress.tokens);
  } else if (progress.admitted && progress.bytes_sent < progress.bytes_to_send) {
    stage = Stage::kSend;
    name = "send";
    fraction =
        static_cast<double>(progress.bytes_sent) / static_cast<double>(progress.bytes_to_send);
  } else if (progress.admitted) {
    stage = Stage::kCompute;
    name = "compute";
    fraction = progress.compute_fraction;
  }
  if (stage != stage_) {
    stage_ = stage;
    stage_begin_ = now;
  } else if (now - last_drawn_ < kRedrawInterval) {
    return;
  }
  last_drawn_ = now;
  const double seconds = absl::ToDoubleSeconds(now - stage_begin_);
  const double rate = seconds > 0 ? fraction * static_cast<double>(progress.tokens) / seconds : 0;
  const std::string line =
      stage == Stage::kQueue
          ? absl::StrCat("in the queue, ", progress.jobs_before, " jobs before this one")
          : FormatProgress(name, fraction, rate);
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::Clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

std::string FormatProgress(std::string_view stage, double fraction, double tokens_per_second) {
  constexpr int kWidth = 30;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const int full = static_cast<int>(fraction * kWidth);
  return absl::StrFormat(
      "[%s%s] %3d %%  %s  %s tokens/s", std::string(static_cast<size_t>(full), '#'),
      std::string(static_cast<size_t>(kWidth - full), ' '), static_cast<int>(fraction * 100), stage,
      FormatCount(static_cast<int64_t>(tokens_per_second)));
}

}  // namespace hilbert_ring::cli
