#include "tests/conformance/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {

class FakeEnd : public NcclEnd {
 public:
  FakeEnd(FakeNccl* nccl, int rank) : nccl_(*nccl), rank_(rank) {}

  ~FakeEnd() override { ++nccl_.ends_destroyed_; }

  absl::StatusOr<std::string> UniqueId() override {
    const Call call(this, "id");
    return std::string(128, 'i');
  }

  absl::StatusOr<NcclStaging> AllocateStaging(int64_t bytes) override {
    const Call call(this, "staging");
    host_.resize(bytes);
    device_.resize(bytes);
    return NcclStaging{host_.data(), device_.data()};
  }

  absl::Status Init(const NcclInit& init) override {
    const Call call(this, absl::StrCat("init ", init.rank, "/", init.size, " ", init.max_ctas));
    const std::lock_guard lock(nccl_.mutex_);
    self().joined = true;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Ready() override {
    const Call call(this, "");
    const std::lock_guard lock(nccl_.mutex_);
    if (!self().failure.ok()) return std::exchange(self().failure, absl::OkStatus());
    if (finalizing_) return nccl_.peers_finalize;
    if (!connected_) {
      connected_ = nccl_.peers_come && std::all_of(nccl_.ranks_.begin(), nccl_.ranks_.end(),
                                                   [](const auto& rank) { return rank.joined; });
      return connected_;
    }
    for (const int peer : peers_) {
      if (*left_ > 0 && nccl_.ranks_[peer].gone) {
        return absl::UnavailableError("connection closed by remote peer");
      }
    }
    return polls_ == 0 || polls_-- == 0;
  }

  absl::Status Group(const std::vector<NcclTransfer>& transfers) override {
    const Call call(this, "group");
    const std::lock_guard lock(nccl_.mutex_);
    self().groups.push_back(transfers);
    *left_ += static_cast<int>(transfers.size());
    polls_ = 1;
    peers_.clear();
    for (const NcclTransfer& transfer : transfers) {
      peers_.push_back(transfer.peer);
      const bool sends = transfer.direction == NcclTransfer::Direction::kSend;
      FakeNccl::Pair& pair = sends ? PairOf(rank_, transfer.peer) : PairOf(transfer.peer, rank_);
      (sends ? pair.sends : pair.receives).push_back({transfer.data, transfer.bytes, left_});
      nccl_.Move(pair);
    }
    return absl::OkStatus();
  }

  absl::Status CopyToDevice(int64_t offset, int64_t bytes) override {
    const Call call(this, "to device");
    std::memcpy(device_.data() + offset, host_.data() + offset, bytes);
    return absl::OkStatus();
  }

  absl::Status CopyToHost(int64_t offset, int64_t bytes) override {
    const Call call(this, "to host");
    copy_offset_ = offset;
    copy_bytes_ = bytes;  // Idle copies them when the group is done
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Idle() override {
    const Call call(this, "");
    const std::lock_guard lock(nccl_.mutex_);
    if (aborted_) return !nccl_.stuck;
    if (*left_ > 0) return false;
    std::memcpy(host_.data() + copy_offset_, device_.data() + copy_offset_,
                std::exchange(copy_bytes_, 0));
    return true;
  }

  absl::Status Finalize() override {
    const Call call(this, "finalize");
    finalizing_ = true;
    return absl::OkStatus();
  }

  void Destroy() override {
    const Call call(this, "destroy");
    Leave();
  }

  void Abort() override {
    const Call call(this, "abort");
    Leave();
    aborted_ = true;
  }

 private:
  // Records a call, and whether it overlaps another call of this end.
  class Call {
   public:
    Call(FakeEnd* end, std::string name) : end_(*end) {
      if (end_.inside_.exchange(true)) end_.nccl_.overlapped_ = true;
      if (name.empty()) return;
      const std::lock_guard lock(end_.nccl_.mutex_);
      end_.self().calls.push_back(std::move(name));
    }
    ~Call() { end_.inside_ = false; }

   private:
    FakeEnd& end_;
  };

  FakeNccl::Rank& self() { return nccl_.ranks_[rank_]; }
  FakeNccl::Pair& PairOf(int from, int to) { return nccl_.pairs_[from * nccl_.ranks_.size() + to]; }

  // Removes this end's pending transfers, so that peers stop using its memory.
  void Leave() {
    const std::lock_guard lock(nccl_.mutex_);
    self().gone = true;
    for (size_t peer = 0; peer < nccl_.ranks_.size(); ++peer) {
      PairOf(rank_, static_cast<int>(peer)).sends.clear();
      PairOf(static_cast<int>(peer), rank_).receives.clear();
    }
  }

  FakeNccl& nccl_;
  const int rank_;
  std::atomic<bool> inside_ = false;
  std::vector<std::byte> host_, device_;
  int64_t copy_offset_ = 0, copy_bytes_ = 0;
  bool connected_ = false, finalizing_ = false, aborted_ = false;
  std::vector<int> peers_;  // of the last group
  int polls_ = 0;
  // Transfers without a match. They share the count, because they may outlive this end.
  const std::shared_ptr<int> left_ = std::make_shared<int>(0);
};

std::unique_ptr<NcclEnd> FakeNccl::MakeEnd(int rank) {
  return std::make_unique<FakeEnd>(this, rank);
}

void FakeNccl::FailRank(int rank, absl::Status status) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].failure = std::move(status);
}

std::vector<std::string> FakeNccl::Calls(int rank) const {
  const std::lock_guard lock(mutex_);
  return ranks_[rank].calls;
}

std::vector<std::vector<NcclTransfer>> FakeNccl::Groups(int rank) const {
  const std::lock_guard lock(mutex_);
  return ranks_[rank].groups;
}

void FakeNccl::Move(Pair& pair) {
  while (!pair.sends.empty() && !pair.receives.empty()) {
    const Transfer &send = pair.sends.front(), &receive = pair.receives.front();
    std::memcpy(receive.data, send.data, std::min(send.bytes, receive.bytes));
    --*send.left;
    --*receive.left;
    pair.sends.pop_front();
    pair.receives.pop_front();
  }
}

}  // namespace hilbert_ring::testing
