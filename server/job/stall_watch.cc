#include "server/job/stall_watch.h"

#include <algorithm>

namespace hilbert_ring::server {
namespace {

constexpr auto kDiskLimit = std::chrono::minutes(10);  // a disk may hang this long

// At 10 MB/s, of a network or a disk.
std::chrono::milliseconds SlowTimeOf(int64_t bytes) {
  return std::chrono::milliseconds(bytes / 10'000);
}

}  // namespace

StallWatch::StallWatch(Clock::duration timeout, const std::vector<int64_t>& received_bytes,
                       std::optional<int64_t> file_bytes)
    : timeout_(timeout),
      disk_limit_(file_bytes ? std::optional(kDiskLimit + SlowTimeOf(*file_bytes)) : std::nullopt) {
  for (const int64_t bytes : received_bytes) workers_.push_back({.slack = SlowTimeOf(bytes)});
}

void StallWatch::Begin(Clock::time_point now) {
  for (Worker& worker : workers_) {
    worker.moved_at = worker.forwarding_since = worker.bytes_at = now;
    worker.forwarded = Clock::duration(0);
  }
}

void StallWatch::Waits(int rank, int64_t step, Clock::time_point now) {
  workers_[rank].waiting_step = step;
  workers_[rank].moved_at = now;
}

bool StallWatch::Progressed(int rank, const v1::RunProgress& progress, bool computes,
                            Clock::time_point now) {
  Worker& worker = workers_[rank];
  v1::RunProgress& furthest = worker.furthest;
  const bool further = progress.fraction() > furthest.fraction() ||
                       progress.layer() > furthest.layer() ||
                       progress.waiting_step() != furthest.waiting_step();
  if (progress.file_bytes() > furthest.file_bytes()) worker.bytes_at = now;
  furthest.set_fraction(std::max(progress.fraction(), furthest.fraction()));
  furthest.set_layer(std::max(progress.layer(), furthest.layer()));
  furthest.set_file_bytes(std::max(progress.file_bytes(), furthest.file_bytes()));
  furthest.set_waiting_step(progress.waiting_step());
  if (!(computes && further) && !(disk_limit_ && now - worker.bytes_at < *disk_limit_))
    return false;
  Waits(rank, computes ? progress.waiting_step() : 0, now);
  return true;
}

double StallWatch::fraction() const {
  double sum = 0;
  for (const Worker& worker : workers_) sum += worker.furthest.fraction();
  return sum / static_cast<double>(workers_.size());
}

int64_t StallWatch::layer() const {
  int64_t layer = workers_.front().furthest.layer();
  for (const Worker& worker : workers_) layer = std::min<int64_t>(layer, worker.furthest.layer());
  return layer;
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
