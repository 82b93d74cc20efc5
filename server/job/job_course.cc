#include "server/job/job_course.h"

#include <spdlog/spdlog.h>

#include <array>

namespace hilbert_ring::server {

std::string_view NameOf(JobPhase phase) {
  static constexpr std::array<std::string_view, kJobPhases> kNames = {
      "open",     "validating", "sizing",    "queued",    "waiting_for_workers",
      "ring",     "starting",   "receiving", "computing", "sending",
      "checking", "done",       "failed"};
  return kNames[static_cast<size_t>(phase)];
}

bool JobCourse::Enter(JobPhase phase, int workers) {
  const JobPhase before = phase_;
  const bool may = MayFollow(before, phase);
  if (may) {
    spdlog::debug("job {}: {} -> {}", job_id_, NameOf(before), NameOf(phase));
  } else {
    spdlog::error("job {}: no way leads from {} to {}", job_id_, NameOf(before), NameOf(phase));
  }
  if (passages_.size() < kMostPassages) passages_.push_back({phase, time_.Now()});
  workers_ = workers;
  fraction_ = 0;
  phase_ = phase;
  if (shown_in_ != nullptr && !HasEnded(phase)) shown_in_->Show(phase, workers, 0);
  return may;
}

}  // namespace hilbert_ring::server
