#include "tests/conformance/communicator_rings.h"

#include <csignal>
#include <thread>
#include <utility>

#include "engine/comm/checked.h"
#include "engine/comm/nccl_communicator.h"
#include "tests/conformance/fake_nccl.h"
#include "tests/conformance/in_process_ring.h"

namespace hilbert_ring::testing {
namespace {

constexpr auto kConnectLimit = std::chrono::seconds(30);

using MakeRank =
    std::function<absl::StatusOr<std::unique_ptr<Communicator>>(int rank, const AllGather&)>;

// Ranks in a thread each, which meet.
absl::StatusOr<CommunicatorRing> MeetingRing(int size, const MakeRank& make) {
  ThreadRendezvous rendezvous(size);
  CommunicatorRing ring(size);
  std::vector<absl::Status> statuses(size);
  std::vector<std::thread> threads;
  threads.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto made = make(rank, rendezvous.ForRank(rank));
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

absl::StatusOr<CommunicatorRing> MakeGlooRing(int size) {
  return MeetingRing(size, [&](int rank, const AllGather& all_gather) {
    return MakeGlooCommunicator({.rank = rank,
                                 .size = size,
                                 .host = "127.0.0.1",
                                 .ring = "conformance",
                                 .deadline = After(kConnectLimit)},
                                all_gather);
  });
}

// Keeps the shared FakeNccl alive.
class OverFakeNccl : public Communicator {
 public:
  OverFakeNccl(std::shared_ptr<FakeNccl> nccl, std::unique_ptr<Communicator> inner)
      : nccl_(std::move(nccl)), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }
  absl::Status Post(const CommStep& step) override { return inner_->Post(step); }
  absl::Status Wait(Deadline deadline) override { return inner_->Wait(deadline); }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  const std::shared_ptr<FakeNccl> nccl_;  // ranks leave in any order
  const std::unique_ptr<Communicator> inner_;
};

absl::StatusOr<CommunicatorRing> MakeFakeNcclRing(int size) {
  const auto nccl = std::make_shared<FakeNccl>(size);
  auto ring = MeetingRing(size, [&](int rank, const AllGather& all_gather) {
    return JoinNcclRing(
        {.rank = rank, .size = size, .ring = "conformance", .deadline = After(kConnectLimit)},
        all_gather, nccl->MakeEnd(rank));
  });
  if (!ring.ok()) return ring;
  return Wrapped(*std::move(ring), [&](std::unique_ptr<Communicator> inner) {
    return std::make_unique<OverFakeNccl>(nccl, std::move(inner));
  });
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
    case RingKind::kFakeNccl:
      return "FakeNccl";
  }
  return "";
}

std::string TransportName(RingKind kind) {
  switch (kind) {
    case RingKind::kInProcess:
    case RingKind::kCheckedInProcess:
      return "in-process";
    case RingKind::kGloo:
    case RingKind::kCheckedGloo:
      return "gloo";
    case RingKind::kFakeNccl:
      return "nccl";
  }
  return "";
}

CommunicatorRing Wrapped(CommunicatorRing ring, const Wrap& wrap) {
  for (std::unique_ptr<Communicator>& communicator : ring) {
    communicator = wrap(std::move(communicator));
  }
  return ring;
}

absl::StatusOr<CommunicatorRing> MakeCommunicatorRing(RingKind kind, int size) {
  std::signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<CommunicatorRing> ring;
  switch (kind) {
    case RingKind::kInProcess:
      return MakeInProcessRing(size);
    case RingKind::kGloo:
      return MakeGlooRing(size);
    case RingKind::kFakeNccl:
      return MakeFakeNcclRing(size);
    case RingKind::kCheckedInProcess:
      ring = MakeInProcessRing(size);
      break;
    case RingKind::kCheckedGloo:
      ring = MakeGlooRing(size);
      break;
  }
  if (!ring.ok()) return ring;
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
