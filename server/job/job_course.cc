#include "server/job/job_course.h"

#include <spdlog/spdlog.h>

namespace hilbert_ring::server {

std::string_view NameOf(JobPhase phase) {
  switch (phase) {
    case JobPhase::kOpen:
      return "open";
    case JobPhase::kValidating:
      return "validating";
    case JobPhase::kSizing:
      return "sizing";
    case JobPhase::kQueued:
      return "queued";
    case JobPhase::kWaitingForWorkers:
      return "waiting_for_workers";
    case JobPhase::kRing:
      return "ring";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kReceiving:
      return "receiving";
    case JobPhase::kComputing:
      return "computing";
    case JobPhase::kSending:
      return "sending";
    case JobPhase::kChecking:
      return "checking";
    case JobPhase::kDone:
      return "done";
    case JobPhase::kFailed:
      return "failed";
  }
  return "";
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
