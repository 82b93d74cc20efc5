#include "server/schedule/plan_gate.h"

#include <algorithm>

namespace hilbert_ring::server {

bool PlansFast(const JobSpec& spec, int workers) {
  constexpr int64_t kFewVisits = 1 << 20;
  const auto sequences = static_cast<int64_t>(std::max<size_t>(1, spec.sequence_lengths.size()));
  int64_t phases = 0;
  for (const Branch& branch : spec.branches) phases += std::min(branch.dilation, spec.heads);
  // Runs of segments, and pieces of segments that lie over several workers with one another.
  const int64_t pieces = std::min<int64_t>(sequences, kFewVisits) + 2 * int64_t{workers} * workers;
  return phases < kFewVisits && pieces * phases <= kFewVisits;
}

PlanGate::Turn PlanGate::TryEnter() {
  const MutexLock lock(mutex_);
  if (inside_ >= most_) return nullptr;
  ++inside_;
  return Turn(this);
}

absl::StatusOr<PlanGate::Turn> PlanGate::Await(const JobStop& stop) {
  MutexLock lock(mutex_);
  left_.wait(lock, stop.token(),
             [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return inside_ < most_; });
  if (absl::Status why = stop.why(); !why.ok()) {
    left_.notify_one();  // the turn is another's
    return why;
  }
  ++inside_;
  return Turn(this);
}

void PlanGate::Leave() {
  const MutexLock lock(mutex_);
  --inside_;
  left_.notify_one();
}

}  // namespace hilbert_ring::server
