#include "server/job/job_course.h"

#include <spdlog/spdlog.h>

#include <array>

namespace hilbert_ring::server {

const JobPhaseNames& NamesOf(JobPhase phase) {
  using v1::Job;
  using v1::Span;
  static constexpr std::array<JobPhaseNames, kJobPhases> kNames = {{
      {"open", Job::STATE_QUEUED, Span::KIND_UNSPECIFIED},
      {"validating", Job::STATE_QUEUED, Span::KIND_UNSPECIFIED},
      {"sizing", Job::STATE_QUEUED, Span::KIND_UNSPECIFIED},
      {"queued", Job::STATE_QUEUED, Span::KIND_QUEUE},
      {"waiting_for_workers", Job::STATE_WAITING_FOR_WORKERS, Span::KIND_QUEUE},
      {"ring", Job::STATE_STARTING, Span::KIND_RING},
      {"starting", Job::STATE_STARTING, Span::KIND_START},
      {"receiving", Job::STATE_RECEIVING, Span::KIND_RECEIVE},
      {"computing", Job::STATE_COMPUTING, Span::KIND_COMPUTE},
      {"sending", Job::STATE_SENDING, Span::KIND_SEND},
      {"checking", Job::STATE_CHECKING, Span::KIND_UNSPECIFIED},
      {"done", Job::STATE_ENDING, Span::KIND_UNSPECIFIED},
      {"failed", Job::STATE_ENDING, Span::KIND_UNSPECIFIED},
  }};
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
