#include "tests/conformance/in_process_ring.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <list>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/peer_error.h"
#include "engine/comm/comm_step.h"
#include "engine/comm/communicator.h"

namespace hilbert_ring {
namespace {

// Bytes copied between two checks of the ranks' states: some of Abort's 100 ms.
constexpr int64_t kCopiedBytes = int64_t{8} << 20;

// A transfer from its first post on. Either end that waits first copies it, once.
struct Transfer {
  TransferKey key;
  int from = 0;
  int to = 0;
  bool sent = false;                  // its sender has posted it
  bool received = false;              // its receiver has posted it
  const std::byte* source = nullptr;  // [key.bytes]
  std::byte* target = nullptr;        // [key.bytes]
  bool copying = false;
  bool done = false;

  bool Ready() const { return sent && received && !copying && !done; }
};

struct RankState {
  absl::Status status;        // not OK: broken or destroyed
  ConditionVariable changed;  // wakes a wait of the rank
};

// Shared by the ranks of one ring.
struct Hub {
  explicit Hub(int size) : size(size), ranks(size), posted(size * size) {}

  // Transfers from one rank to another that only one end has posted.
  std::list<std::shared_ptr<Transfer>>& Posted(int from, int to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return posted[from * size + to];
  }

  const int size;
  Mutex mutex;  // guards transfers too, but not the copied memory
  std::vector<RankState> ranks ABSL_GUARDED_BY(mutex);
  std::vector<std::list<std::shared_ptr<Transfer>>> posted
      ABSL_GUARDED_BY(mutex);  // [from * size + to]
};

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  ~InProcessCommunicator() override {
    MutexLock lock(hub_->mutex);
    Break(absl::UnavailableError("destroyed"));
    Withdraw(lock).IgnoreError();
  }

  int rank() const override { return rank_; }
  int size() const override { return hub_->size; }
  std::string name() const override { return "in-process"; }

  absl::Status Post(const CommStep& step) override {
    MutexLock lock(hub_->mutex);
    if (!self().status.ok()) return Withdraw(lock);
    if (posted_) return absl::FailedPreconditionError("a step is posted already");
    last_number_ = step.number;
    posted_ = true;
    TransferKeys send_keys(step.number, size());
    for (const Send& send : step.sends) {
      const TransferKey key = send_keys.Next(send.peer, send.bytes);
      if (send.bytes == 0) continue;
      std::shared_ptr<Transfer> transfer = Join(key, rank_, send.peer, &Transfer::sent);
      transfer->source = static_cast<const std::byte*>(send.data);
    }
    TransferKeys receive_keys(step.number, size());
    for (const Receive& receive : step.receives) {
      const TransferKey key = receive_keys.Next(receive.peer, receive.bytes);
      if (receive.bytes == 0) continue;
      std::shared_ptr<Transfer> transfer = Join(key, receive.peer, rank_, &Transfer::received);
      transfer->target = static_cast<std::byte*>(receive.data);
    }
    return absl::OkStatus();
  }

  absl::Status Wait(Deadline deadline) override {
    MutexLock lock(hub_->mutex);
    while (true) {
      if (!self().status.ok()) {
        if (waited_for_ >= 0 && absl::IsAborted(self().status)) {
          self().status =
              absl::AbortedError(absl::StrCat(self().status.message(), " (waited for rank ",
                                              waited_for_, " in step ", last_number_, ")"));
        }
        waited_for_ = -1;
        return Withdraw(lock);
      }
      std::erase_if(outstanding_, [](const auto& transfer) { return transfer->done; });
      if (outstanding_.empty()) {
        posted_ = false;
        waited_for_ = -1;
        return absl::OkStatus();
      }
      waited_for_ = PeerOf(*outstanding_.front());
      const auto ready = std::find_if(outstanding_.begin(), outstanding_.end(),
                                      [](const auto& transfer) { return transfer->Ready(); });
      const auto lost =
          std::find_if(outstanding_.begin(), outstanding_.end(),
                       [this](const auto& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) {
                         return !hub_->ranks[PeerOf(*transfer)].status.ok();
                       });
      if (lost != outstanding_.end()) {
        const int peer = PeerOf(**lost);
        Break(WithPeer(
            absl::UnavailableError(absl::StrCat("waited for rank ", peer, " in step ", last_number_,
                                                ": ", hub_->ranks[peer].status.message())),
            peer));
      } else if (std::chrono::steady_clock::now() >= deadline) {
        Break(WithPeer(absl::DeadlineExceededError(absl::StrCat("waited for rank ", waited_for_,
                                                                " in step ", last_number_)),
                       waited_for_));
      } else if (ready != outstanding_.end()) {
        Copy(**ready, deadline);
      } else {
        self().changed.wait_until(lock, deadline);
      }
    }
  }

  void Abort(const std::string& reason) override {
    MutexLock lock(hub_->mutex);
    if (!absl::IsAborted(self().status)) Break(absl::AbortedError(reason));
  }

 private:
  RankState& self() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) { return hub_->ranks[rank_]; }

  int PeerOf(const Transfer& transfer) const {
    return transfer.from == rank_ ? transfer.to : transfer.from;
  }

  // Returns the transfer of the key, which the peer may have posted already.
  std::shared_ptr<Transfer> Join(const TransferKey& key, int from, int to, bool Transfer::*end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) {
    auto& posted = hub_->Posted(from, to);
    const auto found = std::find_if(posted.begin(), posted.end(), [&](const auto& transfer) {
      return transfer->key == key && !((*transfer).*end);
    });
    std::shared_ptr<Transfer> transfer;
    if (found != posted.end()) {
      transfer = *found;
      posted.erase(found);
      hub_->ranks[PeerOf(*transfer)].changed.notify_all();
    } else {
      transfer = std::make_shared<Transfer>(Transfer{.key = key, .from = from, .to = to});
      posted.push_back(transfer);
    }
    (*transfer).*end = true;
    outstanding_.push_back(transfer);
    return transfer;
  }

  // Stops early, with done false, if an end breaks or the deadline passes.
  void Copy(Transfer& transfer, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) {
    transfer.copying = true;
    int64_t copied = 0;
    while (copied < transfer.key.bytes && hub_->ranks[transfer.from].status.ok() &&
           hub_->ranks[transfer.to].status.ok() && std::chrono::steady_clock::now() < deadline) {
      const int64_t bytes = std::min(kCopiedBytes, transfer.key.bytes - copied);
      hub_->mutex.unlock();
      std::memcpy(transfer.target + copied, transfer.source + copied, bytes);
      hub_->mutex.lock();
      copied += bytes;
    }
    transfer.copying = false;
    transfer.done = copied == transfer.key.bytes;
    hub_->ranks[PeerOf(transfer)].changed.notify_all();
  }

  void Break(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) {
    self().status = std::move(status);
    for (RankState& rank : hub_->ranks) rank.changed.notify_all();
  }

  // Removes the broken rank's memory from the ring; returns the status that broke it.
  absl::Status Withdraw(MutexLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) {
    for (const std::shared_ptr<Transfer>& transfer : outstanding_) {
      hub_->Posted(transfer->from, transfer->to).remove(transfer);
      self().changed.wait(
          lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(hub_->mutex) { return !transfer->copying; });
    }
    outstanding_.clear();
    return self().status;
  }

  const std::shared_ptr<Hub> hub_;
  const int rank_;
  int64_t last_number_ = -1;
  bool posted_ = false;
  int waited_for_ = -1;                                 // by a Wait in progress
  std::vector<std::shared_ptr<Transfer>> outstanding_;  // of the posted step
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeInProcessRing(int size) {
  const auto hub = std::make_shared<Hub>(size);  // shared: ranks leave in any order
  std::vector<std::unique_ptr<Communicator>> ring;
  ring.reserve(size);
  for (int rank = 0; rank < size; ++rank) {
    ring.push_back(std::make_unique<InProcessCommunicator>(hub, rank));
  }
  return ring;
}

}  // namespace hilbert_ring
