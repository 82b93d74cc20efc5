#include "server/job/stall_watch.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kSlowBytesPerMillisecond = 10'000;

}  // namespace

StallWatch::StallWatch(Clock::duration timeout, const std::vector<int64_t>& received_bytes)
    : timeout_(timeout) {
  for (const int64_t bytes : received_bytes) {
    workers_.push_back({.slack = std::chrono::milliseconds(bytes / kSlowBytesPerMillisecond)});
  }
}

void StallWatch::Begin(Clock::time_point now) {
  for (Worker& worker : workers_) {
    worker.moved_at = worker.forwarding_since = now;
    worker.forwarded = Clock::duration(0);
  }
}

void StallWatch::Waits(int rank, int64_t step, Clock::time_point now) {
  workers_[rank].waiting_step = step;
  workers_[rank].moved_at = now;
}

void StallWatch::Forwarding(int rank, bool forwarding, Clock::time_point now) {
  Worker& worker = workers_[rank];
  if (worker.forwarding) worker.forwarded += now - worker.forwarding_since;
  worker.forwarding = forwarding;
  worker.forwarding_since = worker.moved_at = now;
}

Clock::duration StallWatch::ForwardedFor(int rank, Clock::time_point now) const {
  const Worker& worker = workers_[rank];
  return worker.forwarded +
         (worker.forwarding ? now - worker.forwarding_since : Clock::duration(0));
}

std::optional<StallWatch::Stall> StallWatch::Find(const std::vector<bool>& awaited,
                                                  Clock::time_point now) const {
  std::optional<Stall> culprit;
  for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank) {
    if (!awaited[rank]) continue;
    const Worker& worker = workers_[rank];
    const Clock::duration limit = worker.waiting_step == 0 ? timeout_ : timeout_ + worker.slack;
    if (worker.forwarding || now - worker.moved_at < limit) return std::nullopt;
    if (!culprit || worker.waiting_step < culprit->waiting_step) {
      culprit = {.rank = rank, .waiting_step = worker.waiting_step};
    }
  }
  return culprit;
}

}  // namespace hilbert_ring::server
