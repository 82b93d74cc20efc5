#include "client/cli/progress_line.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/table.h"

namespace hilbert_ring::cli {
namespace {

// Tenths of the bar for each phase, as integers so that they add up. Real durations are unknown
// until the end.
constexpr int kSendTenths = 3, kComputeTenths = 6, kReceiveTenths = 1;
constexpr int kWidth = 30;
// A phase that has run or done less than this does not predict its end.
constexpr double kLeastSeconds = 0.5, kLeastDone = 0.02;

double PartOf(int64_t part, int64_t whole) {
  if (whole <= 0) return 0;
  return std::clamp(static_cast<double>(part) / static_cast<double>(whole), 0.0, 1.0);
}

// NaN counts as no progress.
double Fraction(double value) { return value > 0 ? std::min(value, 1.0) : 0; }

int Percent(double fraction) { return static_cast<int>(100 * fraction + 1e-9); }

}  // namespace

void ProgressLine::Note(const client::AttendProgress& progress, absl::Time now) {
  const double sent =
      progress.by_reference ? 1 : PartOf(progress.bytes_sent, progress.bytes_to_send);
  const double told = Fraction(progress.compute_fraction);
  const double received =
      progress.by_reference ? told : PartOf(progress.rows_placed, progress.rows);
  // Rows leave as soon as they are final, so received rows are also computed.
  const double computed = std::max(told, received);
  Phase phase = Phase::kReceive;
  double done = received;
  if (progress.away || !progress.admitted) {
    phase = progress.away ? Phase::kAway : Phase::kQueue;
    done = 0;
  } else if (progress.stream) {
    phase = Phase::kStream;
    done = 0;
  } else if (sent < 1) {
    phase = Phase::kSend;
    done = sent;
  } else if (computed < 1) {
    phase = Phase::kCompute;
    done = computed;
  }
  if (phase != phase_ || progress.attempt != progress_.attempt) phase_begin_ = now;
  phase_ = phase;
  phase_done_ = done;
  progress_ = progress;
  if (!progress.admitted || progress.stream) return;
  const double fraction =
      (kSendTenths * sent + kComputeTenths * computed + kReceiveTenths * received) / 10;
  fraction_ = std::clamp(fraction, fraction_, 1.0);
}

std::string ProgressLine::PhaseName() const {
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
    case Phase::kStream:
      return "stream";
  }
  return "";
}

std::string ProgressLine::Pace(absl::Time now) const {
  const double seconds = absl::ToDoubleSeconds(now - phase_begin_);
  const double rate = seconds > 0 ? phase_done_ / seconds : 0;
  switch (phase_) {
    case Phase::kAway:
      return "waits for the service";
    case Phase::kQueue:
      return absl::StrCat(progress_.jobs_before, " job", progress_.jobs_before == 1 ? "" : "s",
                          " before this one");
    case Phase::kSend:
      return absl::StrCat(FormatBytes(rate * static_cast<double>(progress_.bytes_to_send)), "/s");
    case Phase::kStream:
      return absl::StrCat(
          FormatRate(seconds > 0 ? static_cast<double>(progress_.rows_placed) / seconds : 0),
          " tokens/s");
    case Phase::kCompute:
    case Phase::kReceive:
      break;
  }
  return absl::StrCat(FormatRate(rate * static_cast<double>(progress_.tokens)), " tokens/s");
}

std::optional<double> ProgressLine::SecondsLeft(absl::Time now) const {
  const double seconds = absl::ToDoubleSeconds(now - phase_begin_);
  if (seconds < kLeastSeconds || phase_done_ < kLeastDone) return std::nullopt;
  return seconds * (1 - phase_done_) / phase_done_;
}

std::vector<std::string> ProgressLine::Words(absl::Time now) const {
  std::vector<std::string> words = {PhaseName(), Pace(now)};
  if (const std::optional<double> left = SecondsLeft(now)) {
    // The time after sending is unknown.
    words.push_back(absl::StrCat(
        *left < 60 ? absl::StrFormat("%.0f s", std::ceil(*left)) : FormatSeconds(*left),
        phase_ == Phase::kSend ? " left of sending" : " left"));
  }
  if (progress_.attempt > 0) words.push_back(absl::StrCat("attempt ", progress_.attempt + 1));
  return words;
}

std::string ProgressLine::Done() const {
  return absl::StrCat(FormatCount(progress_.rows_placed), " tokens in ",
                      FormatCount(progress_.epochs), " epochs");
}

std::string ProgressLine::Bar(absl::Time now) const {
  if (phase_ == Phase::kStream) return absl::StrCat(Done(), "  ", absl::StrJoin(Words(now), "  "));
  const auto full = static_cast<size_t>(fraction_ * kWidth);
  return absl::StrFormat("[%s%s] %3d %%  %s", std::string(full, '#'),
                         std::string(kWidth - full, ' '), Percent(fraction_),
                         absl::StrJoin(Words(now), "  "));
}

std::string ProgressLine::Sentence(absl::Time now) const {
  if (phase_ == Phase::kStream) {
    return absl::StrFormat("job %s: %s after %s, %s", progress_.job_id, Done(),
                           FormatSeconds(absl::ToDoubleSeconds(now - begin_)),
                           absl::StrJoin(Words(now), ", "));
  }
  return absl::StrFormat("job %s: %d %% after %s, %s", progress_.job_id, Percent(fraction_),
                         FormatSeconds(absl::ToDoubleSeconds(now - begin_)),
                         absl::StrJoin(Words(now), ", "));
}

nlohmann::ordered_json ProgressLine::Json(absl::Time now) const {
  nlohmann::ordered_json json = {{"job_id", progress_.job_id},
                                 {"attempt", progress_.attempt + 1},
                                 {"phase", PhaseName()},
                                 {"fraction", fraction_},
                                 {"seconds", absl::ToDoubleSeconds(now - begin_)}};
  if (phase_ == Phase::kStream) {
    json.erase("fraction");
    json["tokens"] = progress_.rows_placed;
    json["epochs"] = progress_.epochs;
  }
  if (const auto left = SecondsLeft(now)) json["phase_seconds_left"] = *left;
  return json;
}

}  // namespace hilbert_ring::cli
