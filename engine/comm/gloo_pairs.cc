#include "engine/comm/gloo_pairs.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gloo/common/logging.h"
#include "gloo/transport/tcp/context.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/pair.h"

namespace hilbert_ring {
namespace {

namespace tcp = gloo::transport::tcp;

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

// A base of its own, because a pair listens before its members are made.
struct PairState {
  std::atomic<int> inside_ = 0;  // calls by Gloo's thread
};

class CheckedPair final : PairState, public tcp::Pair {
 public:
  CheckedPair(tcp::Context* context, tcp::Device* device, int peer,
              std::chrono::milliseconds timeout)
      : tcp::Pair(context, device, peer, timeout) {}

  // Returns after Gloo's thread has left the pair. Sent bytes still arrive.
  ~CheckedPair() override {
    {
      const std::lock_guard lock(m_);
      if (state_ != CLOSED) changeState(CLOSED);
    }
    while (inside_ > 0) std::this_thread::yield();
  }

 private:
  // Runs in Gloo's thread, which no exception may leave.
  void handleEvents(int events) override {
    const Counted inside(inside_);
    try {
      tcp::Pair::handleEvents(events);
    } catch (const std::exception& error) {
      const std::unique_lock lock(m_, std::try_to_lock);
      if (lock) End(error.what());  // else the connecting thread has it, up to its limit
    }
  }

  // The pair's lock is held in all functions below.
  void handleReadWrite(int events) override {
    try {
      tcp::Pair::handleReadWrite(events);
    } catch (const std::exception& error) {
      End(error.what());
    }
    if (state_ == CLOSED && ex_ != nullptr) TellThoseUnderWay();
  }

  // Closes an accepted connection that the device does not know yet: Gloo's own code throws.
  void changeState(state next) noexcept override {
    if (next == CLOSED && state_ != CONNECTED && fd_ >= 0) {
      try {
        device_->unregisterDescriptor(fd_, this);
      } catch (const gloo::EnforceNotMet&) {
      }
      ::close(std::exchange(fd_, -1));
    }
    tcp::Pair::changeState(next);
  }

  void End(const std::string& why) {
    if (ex_ == nullptr && state_ != CLOSED) signalException(why);
  }

  // Gloo passes the error only to waits for operations that have not begun; this passes it to all.
  void TellThoseUnderWay() {
    localPendingRecv_.clear();
    localPendingSend_.clear();
    localPendingRecv_[rx_.preamble.slot].emplace_back(std::move(rx_.ubuf), rx_.offset, rx_.nbytes);
    for (tcp::Op& op : tx_) {
      localPendingSend_[op.preamble.slot].emplace_back(std::move(op.ubuf), op.offset, op.nbytes);
    }
    rx_ = tcp::Op();
    tx_.clear();
    const std::exception_ptr error = std::exchange(ex_, nullptr);
    signalException(error);
  }
};

class CheckedContext final : public tcp::Context {
 public:
  CheckedContext(std::shared_ptr<tcp::Device> device, const GlooRanks& ranks)
      : tcp::Context(std::move(device), ranks.rank, ranks.size) {}

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    pairs_[peer] = std::make_unique<CheckedPair>(this, device_.get(), peer, getTimeout());
    return pairs_[peer];
  }
};

}  // namespace

std::shared_ptr<gloo::transport::Context> MakeGlooContext(
    const std::shared_ptr<gloo::transport::Device>& device, const GlooRanks& ranks) {
  return std::make_shared<CheckedContext>(std::dynamic_pointer_cast<tcp::Device>(device), ranks);
}

}  // namespace hilbert_ring
