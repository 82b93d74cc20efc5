#include "tests/conformance/communicator_rings.h"

#include <csignal>
#include <thread>
#include <utility>

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

absl::StatusOr<CommunicatorRing> MakeCommunicatorRing(RingKind kind, int size) {
  std::signal(SIGPIPE, SIG_IGN);
  if (kind == RingKind::kInProcess) return MakeInProcessRing(size);
  return MakeGlooRing(size);
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
