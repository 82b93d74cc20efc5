// Progress of a job over all its attempts, as one number that never falls, and as text.
//
//   ProgressLine line(client::SteadyNow());
//   line.Note(progress, client::SteadyNow());   // of client::AttendOptions::progress
//   line.Bar(client::SteadyNow());
//       // "[####    ]  31 %  compute  9,000 tokens/s  8 s left"
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/attend.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {

// Used by one thread at a time.
class ProgressLine {
 public:
  explicit ProgressLine(absl::Time now) : begin_(now), phase_begin_(now) {}

  void Note(const client::AttendProgress& progress, absl::Time now);

  // Progress of the whole job, 0 to 1. A new attempt leaves it unchanged until it has come as far.
  double fraction() const { return fraction_; }

  // Text for a terminal and a log, and JSON for programs. A stream, whose length is unknown, shows
  // finished work instead of a fraction.
  std::string Bar(absl::Time now) const;
  std::string Sentence(absl::Time now) const;
  nlohmann::ordered_json Json(absl::Time now) const;

 private:
  enum class Phase { kAway, kQueue, kSend, kCompute, kReceive, kStream };

  std::string PhaseName() const;
  std::string Pace(absl::Time now) const;
  std::optional<double> SecondsLeft(absl::Time now) const;
  std::vector<std::string> Words(absl::Time now) const;
  std::string Done() const;

  const absl::Time begin_;
  client::AttendProgress progress_;
  Phase phase_ = Phase::kQueue;
  absl::Time phase_begin_;  // in this attempt
  double phase_done_ = 0;
  double fraction_ = 0;
};

}  // namespace hilbert_ring::cli
