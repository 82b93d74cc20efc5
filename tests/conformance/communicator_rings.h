// Rings of every kind of communicator, with threads as ranks.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"

namespace hilbert_ring::testing {

enum class RingKind {
  kInProcess,
  kGloo,
  kCheckedInProcess,
  kCheckedGloo,
  kFakeNccl,  // the NCCL communicator without NCCL
};

std::string RingKindName(RingKind kind);

// Returns the name of the kind's communicators: "gloo".
std::string TransportName(RingKind kind);

using CommunicatorRing = std::vector<std::unique_ptr<Communicator>>;

// A rendezvous of threads of one ring.
class ThreadRendezvous {
 public:
  explicit ThreadRendezvous(int size) : blobs_(size) {}

  AllGather ForRank(int rank);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> blobs_;  // [ranks]
  size_t arrived_ = 0;
};

Deadline After(std::chrono::milliseconds time);

// Ignores SIGPIPE, as Gloo requires of a process.
absl::StatusOr<CommunicatorRing> MakeCommunicatorRing(RingKind kind, int size);

// Puts every rank's communicator into another.
using Wrap = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
CommunicatorRing Wrapped(CommunicatorRing ring, const Wrap& wrap);

// Runs work(rank, its communicator) in one thread a rank.
using RankWork = std::function<void(int rank, Communicator& communicator)>;
void RunRanks(const CommunicatorRing& ring, const RankWork& work);

}  // namespace hilbert_ring::testing
