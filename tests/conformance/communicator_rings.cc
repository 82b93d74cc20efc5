#include "tests/conformance/communicator_rings.h"

#include <csignal>
#include <thread>
#include <utility>

#include "engine/comm/checked.h"

namespace hilbert_ring::testing {
namespace {

constexpr auto kConnectLimit = std::chrono::seconds(30);

absl::StatusOr<CommunicatorRing> MakeGlooRing(int size) {
  ThreadRendezvous rendezvous(size);
  CommunicatorRing ring(size);
  std::vector<absl::Status> statuses(size);
  std::vector<std::thread> threads;
  threads.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto made = MakeGlooCommunicator({.rank = rank,
                                        .size = size,
                                        .host = "127.0.0.1",
                                        .ring = "conformance",
                                        .deadline = After(kConnectLimit)},
                                       rendezvous.ForRank(rank));
      statuses[rank] = made.status();
      if (made.ok()) ring[rank] = *std::move(made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return ring;
}

}  // namespace

AllGather ThreadRendezvous::ForRank(int rank) {
  return
      [this, rank](std::string own, Deadline deadline) -> absl::StatusOr<std::vector<std::string>> {
        std::unique_lock lock(mutex_);
        blobs_[rank] = std::move(own);
        ++arrived_;
        changed_.notify_all();
        if (!changed_.wait_until(lock, deadline, [this] { return arrived_ == blobs_.size(); })) {
          return absl::DeadlineExceededError("rendezvous");
        }
        return blobs_;
      };
}

Deadline After(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

std::string RingKindName(RingKind kind) {
  switch (kind) {
    case RingKind::kInProcess:
      return "InProcess";
    case RingKind::kGloo:
      return "Gloo";
    case RingKind::kCheckedInProcess:
      return "CheckedInProcess";
    case RingKind::kCheckedGloo:
      return "CheckedGloo";
  }
  return "";
}

std::string TransportName(RingKind kind) {
  const bool gloo = kind == RingKind::kGloo || kind == RingKind::kCheckedGloo;
  return gloo ? "gloo" : "in-process";
}

CommunicatorRing Wrapped(CommunicatorRing ring, const Wrap& wrap) {
  for (std::unique_ptr<Communicator>& communicator : ring) {
    communicator = wrap(std::move(communicator));
  }
  return ring;
}

absl::StatusOr<CommunicatorRing> MakeCommunicatorRing(RingKind kind, int size) {
  std::signal(SIGPIPE, SIG_IGN);
  auto ring = TransportName(kind) == "gloo" ? MakeGlooRing(size) : MakeInProcessRing(size);
  const bool checked = kind == RingKind::kCheckedInProcess || kind == RingKind::kCheckedGloo;
  if (!ring.ok() || !checked) return ring;
  return Wrapped(*std::move(ring), MakeChecked);
}

void RunRanks(const CommunicatorRing& ring, const RankWork& work) {
  std::vector<std::thread> threads;
  threads.reserve(ring.size());
  for (size_t rank = 0; rank < ring.size(); ++rank) {
    threads.emplace_back([&, rank] { work(static_cast<int>(rank), *ring[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hilbert_ring::testing
