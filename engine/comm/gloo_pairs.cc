#include "engine/comm/gloo_pairs.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "gloo/common/error.h"
#include "gloo/common/logging.h"
#include "gloo/transport/tcp/context.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/pair.h"

namespace hilbert_ring {
namespace {

namespace tcp = gloo::transport::tcp;

// Operations that a peer may have sent before this rank starts what they belong to: those of one
// step. Gloo looks through all of them at each.
constexpr int64_t kMostAhead = 1 << 15;

class CheckedPair final : public tcp::Pair {
 public:
  using tcp::Pair::Pair;

  void send(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override {
    ahead_ -= 1;  // the peer says that it is ready
    tcp::Pair::send(buffer, slot, offset, bytes);
  }

  void recv(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override {
    ahead_ -= 2;  // the peer says that it is ready, and sends
    tcp::Pair::recv(buffer, slot, offset, bytes);
  }

 private:
  // In Gloo's thread, which nothing thrown may leave.
  void handleEvents(int events) override {
    try {
      tcp::Pair::handleEvents(events);
    } catch (...) {
      const std::lock_guard lock(m_);
      if (state_ < CONNECTED) DropSocket();
      End(std::current_exception());
      TellThoseUnderWay();
    }
  }

  // The pair's lock is held, here and below.
  void handleReadWrite(int events) override {
    tcp::Pair::handleReadWrite(events);
    TellThoseUnderWay();
  }

  // One that was accepted and is gone by then is not known to the device yet, which Gloo would ask
  // to forget it.
  void DropSocket() {
    try {
      device_->unregisterDescriptor(fd_, this);
    } catch (const gloo::EnforceNotMet&) {
    }
    ::close(std::exchange(fd_, -1));
  }

  // One operation of the peer's; false where the rest of it is to come.
  bool read() override {
    if (tcp::Pair::read()) return ++ahead_ <= kMostAhead || Refuse("more than a step's operations");
    // Gloo's other kind of buffers, which there are none of: it would try again at once.
    const bool is_none =
        rx_.nread >= sizeof(rx_.preamble) && rx_.getOpcode() == tcp::Op::SEND_BUFFER;
    return is_none && Refuse("an operation that is none of a ring's");
  }

  bool Refuse(const char* what) {
    End(std::make_exception_ptr(gloo::IoException(std::string("the peer sends ") + what)));
    return false;
  }

  void End(const std::exception_ptr& error) {
    if (ex_ == nullptr && state_ != CLOSED) signalException(error);
  }

  // Gloo tells the error to those who wait for operations that have not begun, and leaves the
  // others to their deadlines.
  void TellThoseUnderWay() {
    if (state_ != CLOSED || ex_ == nullptr) return;
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

  std::atomic<int64_t> ahead_ = 0;  // operations that came less those that are owed
};

class CheckedContext final : public tcp::Context {
 public:
  CheckedContext(std::shared_ptr<tcp::Device> device, int rank, int size)
      : tcp::Context(std::move(device), rank, size) {}

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    pairs_[peer] = std::make_unique<CheckedPair>(this, device_.get(), peer, getTimeout());
    return pairs_[peer];
  }
};

}  // namespace

std::shared_ptr<gloo::transport::Context> MakeGlooContext(
    const std::shared_ptr<gloo::transport::Device>& device, int rank, int size) {
  return std::make_shared<CheckedContext>(std::dynamic_pointer_cast<tcp::Device>(device), rank,
                                          size);
}

}  // namespace hilbert_ring
