#include "server/cluster/rings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/mutex.h"
#include "engine/base/random_bits.h"
#include "engine/base/return_if_error.h"
#include "server/cluster/call_members.h"
#include "server/process/logging.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::Status CheckOneTransport(const Members& members) {
  for (const auto& member : members) {
    if (member->transport == members.front()->transport) continue;
    return wire::ErrorOf(
        wire::reason::kMixedTransports,
        absl::StrCat("worker ", members.front()->address, " makes rings over ",
                     members.front()->transport, ", worker ", member->address, " over ",
                     member->transport,
                     ": workers of one ring are all on GPUs or all on processors"));
  }
  return absl::OkStatus();
}

Rings::Rings(Formed formed)
    : formed_(std::move(formed)),
      prefix_(absl::StrCat("ring-", absl::Hex(DrawBits() >> 32, absl::kZeroPad8), "-")) {}

absl::StatusOr<Rings::Lease> Rings::Take(const Members& members, const std::string& job_id,
                                         const JobStop& stop) {
  RETURN_IF_ERROR(CheckOneTransport(members));
  for (const Ring& stale : TakeStale(members)) Close(stale);
  Ring ring;
  {
    const MutexLock lock(mutex_);
    auto found = std::find_if(rings_.begin(), rings_.end(),
                              [&](const Ring& r) { return r.members == members; });
    if (found == rings_.end()) {
      rings_.push_front({.id = absl::StrCat(prefix_, ++numbered_), .members = members});
      found = rings_.begin();
    }
    if (!found->job_id.empty()) {
      return wire::ErrorOf(wire::reason::kRingLeased,
                           absl::StrCat("ring ", found->id, " is leased by job ", found->job_id));
    }
    found->job_id = job_id;
    if (!found->formed) found->generation = ++generation_;
    rings_.splice(rings_.begin(), rings_, found);
    ring = *found;
  }
  Lease lease(this, ring.id, ring.generation);  // an error below closes it
  if (ring.formed) {
    ++hits_;
    return lease;
  }
  ++misses_;
  const Clock::time_point start = Clock::now();
  absl::Status status = Form(ring, stop);
  if (formed_) formed_(status, ring.stood, SecondsBetween(start, Clock::now()));
  RETURN_IF_ERROR(status);
  LogEvent(spdlog::level::info, "ring formed",
           {{"ring", ring.id},
            {"generation", ring.generation},
            {"workers", absl::StrJoin(ring.members, " ",
                                      [](std::string* out, const auto& member) {
                                        absl::StrAppend(out, member->address);
                                      })},
            {"seconds", SecondsBetween(start, Clock::now())}});
  const MutexLock lock(mutex_);
  Ring& formed = *Find(ring.id);  // a leased ring stays in the list
  formed.formed = formed.stood = true;
  return lease;
}

absl::Status Rings::Form(const Ring& ring, const JobStop& stop) const {
  const Deadline deadline = Clock::now() + kFormTimeout;
  std::vector<v1::PrepareRingRequest> prepares(ring.members.size());
  for (size_t rank = 0; rank < ring.members.size(); ++rank) {
    v1::PrepareRingRequest& prepare = prepares[rank];
    prepare.set_ring_id(ring.id);
    prepare.set_generation(ring.generation);
    prepare.set_rank(static_cast<int>(rank));
    prepare.set_size(static_cast<int>(ring.members.size()));
    prepare.set_timeout_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(kFormTimeout).count());
  }
  std::vector<v1::PrepareRingResponse> ends;
  RETURN_IF_ERROR(CallMembers(ring.members, prepares, ends, deadline, &stop, "PrepareRing",
                              [](auto* stub, auto... a) { stub->async()->PrepareRing(a...); }));

  v1::ConnectRingRequest connect;
  connect.set_ring_id(ring.id);
  connect.set_generation(ring.generation);
  for (v1::PrepareRingResponse& end : ends) connect.add_blobs(std::move(*end.mutable_blob()));
  const std::vector<v1::ConnectRingRequest> connects(ring.members.size(), connect);
  std::vector<v1::ConnectRingResponse> connected;
  return CallMembers(ring.members, connects, connected, deadline, &stop, "ConnectRing",
                     [](auto* stub, auto... a) { stub->async()->ConnectRing(a...); });
}

void Rings::Close(const Ring& ring) {
  v1::CloseRingRequest close;
  close.set_ring_id(ring.id);
  close.set_generation(ring.generation);
  Members live;
  for (const auto& member : ring.members) {
    if (!member->departed.stop_requested()) live.push_back(member);
  }
  if (live.empty()) return;
  std::vector<v1::CloseRingResponse> closed;
  const Clock::duration each =
      std::max<Clock::duration>(kCloseTimeout / std::ssize(live), kLeastCloseTimeout);
  // A worker that does not get the call sees its peers' ends close.
  for (const auto& member : live) {
    CallMembers({member}, std::vector{close}, closed, Clock::now() + each, nullptr, "CloseRing",
                [](auto* stub, auto... a) { stub->async()->CloseRing(a...); })
        .IgnoreError();
  }
}

void Rings::Release(const std::string& ring_id, bool keep) {
  Ring ring;
  {
    const MutexLock lock(mutex_);
    const auto found = Find(ring_id);
    if (keep) {
      found->job_id.clear();
      return;
    }
    found->formed = false;
    ring = *found;
  }
  Close(ring);
  const MutexLock lock(mutex_);
  Find(ring_id)->job_id.clear();
}

std::list<Rings::Ring>::iterator Rings::Find(const std::string& ring_id) {
  return std::ranges::find(rings_, ring_id, &Ring::id);
}

std::vector<Rings::Ring> Rings::TakeStale(const Members& wanted) {
  const MutexLock lock(mutex_);
  const bool there =
      std::any_of(rings_.begin(), rings_.end(), [&](const Ring& r) { return r.members == wanted; });
  const size_t most = there ? kMaxRings : kMaxRings - 1;
  std::vector<Ring> stale;
  size_t kept = 0;
  for (auto ring = rings_.begin(); ring != rings_.end();) {
    const auto next = std::next(ring);
    const bool broken =
        std::any_of(ring->members.begin(), ring->members.end(),
                    [](const auto& member) { return member->departed.stop_requested(); });
    if (ring->job_id.empty() && (broken || kept >= most)) {
      if (ring->formed) stale.push_back(*ring);
      rings_.erase(ring);
    } else {
      ++kept;
    }
    ring = next;
  }
  return stale;
}

int64_t Rings::generation() const {
  const MutexLock lock(mutex_);
  return generation_;
}

std::vector<v1::Ring> Rings::Describe() const {
  const MutexLock lock(mutex_);
  std::vector<v1::Ring> rings;
  for (const Ring& ring : rings_) {
    if (!ring.formed) continue;
    v1::Ring& described = rings.emplace_back();
    described.set_ring_id(ring.id);
    described.set_generation(ring.generation);
    for (const auto& member : ring.members) described.add_members(member->address);
    described.set_job_id(ring.job_id);
  }
  return rings;
}

Rings::Lease::~Lease() {
  if (rings_ != nullptr) rings_->Release(ring_id_, false);
}

void Rings::Lease::Keep() {
  if (rings_ != nullptr) rings_->Release(ring_id_, true);
  rings_ = nullptr;
}

}  // namespace hilbert_ring::server
