#include "server/worker/ring_table.h"

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "engine/comm/checked.h"
#include "wire/status.h"

namespace hilbert_ring::server {

// Guarded by the table's mutex, except for the communicator of a lease.
struct RingTable::Ring {
  RingEnd end;
  std::optional<std::string> own;                 // the blob of this rank
  std::optional<std::vector<std::string>> blobs;  // by rank
  std::unique_ptr<Communicator> communicator;     // once connected
  absl::Status failure;
  bool closed = false;
  bool leased = false;
  int64_t next_step = 1;

  bool settled() const { return communicator != nullptr || !failure.ok() || closed; }
};

namespace {

absl::Status Stale(const std::string& ring_id, int64_t generation, const std::string& what) {
  return wire::ErrorOf(wire::reason::kRingLeased,
                       absl::StrCat("generation ", generation, " of ", ring_id, " ", what));
}

// NCCL's blocks of an exchange. A block of the Hopper kernels takes nearly all registers of its
// multiprocessor, so NCCL's blocks need multiprocessors of their own.
constexpr int kExchangeBlocks = 8;

std::string NameOf(const RingEnd& end) { return absl::StrCat(end.ring_id, "/", end.generation); }

absl::Status Closed() { return absl::AbortedError("the ring was closed"); }

}  // namespace

RingTransport MakeRingTransport(const std::string& host, std::optional<int> gpu) {
  using Joined = absl::StatusOr<std::unique_ptr<Communicator>>;
  if (gpu) {
    return {.name = "nccl",
            .join = [gpu](const RingEnd& end, Deadline deadline, const AllGather& all_gather,
                          const std::function<bool()>& cancelled) -> Joined {
              return MakeNcclCommunicator({.rank = end.rank,
                                           .size = end.size,
                                           .cuda_device = *gpu,
                                           .ring = NameOf(end),
                                           .deadline = deadline,
                                           .max_ctas = kExchangeBlocks,
                                           .cancelled = cancelled},
                                          all_gather);
            }};
  }
  return {.name = "gloo",
          .join = [host](const RingEnd& end, Deadline deadline, const AllGather& all_gather,
                         const std::function<bool()>& /*cancelled*/) -> Joined {
            ASSIGN_OR_RETURN(auto made, MakeGlooCommunicator({.rank = end.rank,
                                                              .size = end.size,
                                                              .host = host,
                                                              .ring = NameOf(end),
                                                              .deadline = deadline},
                                                             all_gather));
            return MakeChecked(std::move(made));
          }};
}

RingTable::~RingTable() {
  MutexLock lock(mutex_);
  for (auto& [id, ring] : rings_) Abort(*ring);
  rings_.clear();
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return forming_ == 0; });
}

int RingTable::count() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(rings_.size());
}

void RingTable::Abort(Ring& ring) {
  ring.closed = true;
  if (ring.communicator != nullptr) ring.communicator->Abort("the ring was closed");
  changed_.notify_all();
}

std::shared_ptr<RingTable::Ring> RingTable::Find(const std::string& ring_id, int64_t generation) {
  const auto found = rings_.find(ring_id);
  const bool there = found != rings_.end() && found->second->end.generation == generation;
  return there ? found->second : nullptr;
}

absl::StatusOr<std::string> RingTable::Prepare(const RingEnd& end, Deadline deadline) {
  std::shared_ptr<Ring> given_up;  // destroyed without the lock
  MutexLock lock(mutex_);
  if (const auto known = rings_.find(end.ring_id); known != rings_.end()) {
    const int64_t generation = known->second->end.generation;
    if (generation >= end.generation) {
      return Stale(end.ring_id, end.generation, absl::StrCat("is not above ", generation));
    }
    given_up = known->second;
    Abort(*given_up);
    rings_.erase(known);
  }
  auto ring = std::make_shared<Ring>();
  ring->end = end;
  rings_[end.ring_id] = ring;
  std::thread([this, ring, deadline] {
    Form(ring, deadline);
    const MutexLock lock(mutex_);
    --forming_;
    changed_.notify_all();
  }).detach();
  ++forming_;  // the thread needs the lock to count itself out
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ring->own.has_value() || ring->settled();
  });
  if (ring->own) return *ring->own;
  RETURN_IF_ERROR(ring->failure);
  return Closed();
}

void RingTable::Form(const std::shared_ptr<Ring>& ring, Deadline deadline) {
  const AllGather all_gather = [&](std::string own,
                                   Deadline limit) -> absl::StatusOr<std::vector<std::string>> {
    MutexLock lock(mutex_);
    ring->own = std::move(own);
    changed_.notify_all();
    const bool in_time =
        changed_.wait_until(lock, limit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return ring->blobs.has_value() || ring->closed;
        });
    if (ring->closed) return Closed();
    if (!in_time) return absl::DeadlineExceededError("the peers' addresses did not come in time");
    return *ring->blobs;
  };
  auto made = transport_.join(ring->end, deadline, all_gather, [&] {
    const MutexLock lock(mutex_);
    return ring->closed;
  });
  const MutexLock lock(mutex_);  // released before the communicator of a closed ring ends
  if (!made.ok()) {
    ring->failure = made.status();
  } else if (!ring->closed) {
    ring->communicator = *std::move(made);
  }
  changed_.notify_all();
}

absl::Status RingTable::Connect(const std::string& ring_id, int64_t generation,
                                std::vector<std::string> blobs) {
  MutexLock lock(mutex_);
  const std::shared_ptr<Ring> ring = Find(ring_id, generation);
  if (ring == nullptr || ring->blobs) return Stale(ring_id, generation, "is not being formed");
  ring->blobs = std::move(blobs);
  changed_.notify_all();
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ring->settled(); });
  RETURN_IF_ERROR(ring->failure);
  return ring->closed ? Closed() : absl::OkStatus();
}

void RingTable::Close(const std::string& ring_id, int64_t generation) {
  std::shared_ptr<Ring> ring;  // destroyed without the lock, unless a job or a thread has it
  const MutexLock lock(mutex_);
  const auto found = rings_.find(ring_id);
  if (found == rings_.end() || found->second->end.generation > generation) return;
  ring = found->second;
  rings_.erase(found);
  Abort(*ring);
}

void RingTable::CloseAll() {
  std::map<std::string, std::shared_ptr<Ring>> closed;  // destroyed without the lock
  const MutexLock lock(mutex_);
  for (const auto& [id, ring] : rings_) Abort(*ring);
  closed.swap(rings_);
}

absl::StatusOr<RingTable::Lease> RingTable::Take(const std::string& ring_id, int64_t generation) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Ring> ring = Find(ring_id, generation);
  if (ring == nullptr || ring->communicator == nullptr) {
    return Stale(ring_id, generation, "is not there");
  }
  if (ring->leased) {
    return wire::ErrorOf(wire::reason::kRingLeased,
                         absl::StrCat(ring_id, " is leased by another job"));
  }
  ring->leased = true;
  return Lease(this, ring);
}

RingTable::Lease::~Lease() {
  if (ring_ == nullptr) return;
  table_->Close(ring_->end.ring_id, ring_->end.generation);
}

Communicator* RingTable::Lease::communicator() const { return ring_->communicator.get(); }

int64_t RingTable::Lease::first_step() const { return ring_->next_step; }

void RingTable::Lease::Finish(int64_t steps) {
  const MutexLock lock(table_->mutex_);
  ring_->next_step += steps + 1;
  ring_->leased = false;
  ring_ = nullptr;
}

}  // namespace hilbert_ring::server
