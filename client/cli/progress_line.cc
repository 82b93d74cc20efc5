#include "client/cli/progress_line.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"

namespace hilbert_ring::cli {
namespace {

// Shares of the bar, in tenths. How long each takes is known only when it is over.
constexpr int kSendShare = 3, kComputeShare = 6, kReceiveShare = 1;
constexpr int kWidth = 30;
// Earlier a phase says little about its end.
constexpr double kLeastSeconds = 0.5, kLeastDone = 0.02;

double PartOf(int64_t part, int64_t whole) {
  return whole <= 0 ? 0
                    : std::clamp(static_cast<double>(part) / static_cast<double>(whole), 0.0, 1.0);
}

int Percent(double fraction) { return static_cast<int>(100 * fraction + 1e-9); }

}  // namespace

void ProgressLine::Note(const client::AttendProgress& progress, absl::Time now) {
  const double sent = PartOf(progress.bytes_sent, progress.bytes_to_send);
  const double received = PartOf(progress.rows_placed, progress.tokens);
  // Rows leave as soon as they are final, and what has come is computed.
  const double computed = std::clamp(std::max(progress.compute_fraction, received), 0.0, 1.0);
  Phase phase = Phase::kReceive;
  double done = received;
  if (progress.away) {
    phase = Phase::kAway;
    done = 0;
  } else if (!progress.admitted) {
    phase = Phase::kQueue;
    done = 0;
  } else if (sent < 1) {
    phase = Phase::kSend;
    done = sent;
  } else if (computed < 1) {
    phase = Phase::kCompute;
    done = computed;
  }
  if (phase != phase_ || progress.attempt != progress_.attempt ||
      part_.begin == absl::InfinitePast()) {
    part_.begin = now;
    phase_ = phase;
  }
  part_.done = done;
  progress_ = progress;
  if (progress.admitted) {
    fraction_ = std::max(
        fraction_, (kSendShare * sent + kComputeShare * computed + kReceiveShare * received) / 10);
  }
}

const char* ProgressLine::PhaseName() const {
  switch (phase_) {
    case Phase::kAway:
      return "away";
    case Phase::kQueue:
      return "queue";
    case Phase::kSend:
      return "send";
    case Phase::kCompute:
      return "compute";
    case Phase::kReceive:
      return "receive";
  }
  return "";
}

std::string ProgressLine::Rate(absl::Time now) const {
  switch (phase_) {
    case Phase::kAway:
      return "waits for the service";
    case Phase::kQueue:
      return absl::StrCat(progress_.jobs_before, " job", progress_.jobs_before == 1 ? "" : "s",
                          " before this one");
    default:
      break;
  }
  const double seconds = absl::ToDoubleSeconds(now - part_.begin);
  const double done = seconds > 0 ? part_.done / seconds : 0;
  if (phase_ == Phase::kSend) {
    return absl::StrCat(FormatBytes(done * static_cast<double>(progress_.bytes_to_send)), "/s");
  }
  return absl::StrCat(
      FormatCount(static_cast<int64_t>(done * static_cast<double>(progress_.tokens))), " tokens/s");
}

// Of the phase, at its rate; below 0 while that is unknown.
double ProgressLine::SecondsLeft(absl::Time now) const {
  const double seconds = absl::ToDoubleSeconds(now - part_.begin);
  if (seconds < kLeastSeconds || part_.done < kLeastDone) return -1;
  return seconds * (1 - part_.done) / part_.done;
}

std::string ProgressLine::TimeLeft(absl::Time now) const {
  const double seconds = SecondsLeft(now);
  if (seconds < 0) return "";
  const std::string time =
      seconds < 60 ? absl::StrFormat("%.0f s", std::ceil(seconds)) : FormatSeconds(seconds);
  // What follows the sending is not known yet.
  return absl::StrCat("  ", time, phase_ == Phase::kSend ? " left of sending" : " left");
}

std::string ProgressLine::Bar(absl::Time now) const {
  const int full = static_cast<int>(fraction_ * kWidth);
  return absl::StrFormat(
      "[%s%s] %3d %%  %s  %s%s%s", std::string(static_cast<size_t>(full), '#'),
      std::string(static_cast<size_t>(kWidth - full), ' '), Percent(fraction_), PhaseName(),
      Rate(now), TimeLeft(now),
      progress_.attempt > 0 ? absl::StrCat("  attempt ", progress_.attempt + 1) : "");
}

std::string ProgressLine::Sentence(absl::Time now) const {
  return absl::StrFormat("job %s: %d %% after %s, %s, %s%s", progress_.job_id, Percent(fraction_),
                         FormatSeconds(absl::ToDoubleSeconds(now - begin_)), PhaseName(), Rate(now),
                         SecondsLeft(now) < 0 ? "" : absl::StrCat(",", TimeLeft(now).substr(1)));
}

nlohmann::ordered_json ProgressLine::Json(absl::Time now) const {
  nlohmann::ordered_json json = {{"job_id", progress_.job_id},
                                 {"attempt", progress_.attempt + 1},
                                 {"phase", PhaseName()},
                                 {"fraction", fraction_},
                                 {"seconds", absl::ToDoubleSeconds(now - begin_)}};
  if (const double left = SecondsLeft(now); left >= 0) json["phase_seconds_left"] = left;
  return json;
}

}  // namespace hilbert_ring::cli
