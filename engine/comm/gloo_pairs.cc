#include "engine/comm/gloo_pairs.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

// Operations that Gloo's thread takes before it looks whether somebody else wants the pair.
// An exchange is as fast with 1 (Intel Xeon, seven runs in turn: 0.99 to 1.02 times).
constexpr int kOfATurn = 64;

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

// Apart, and made first: a pair listens before it is made.
struct PairState {
  explicit PairState(const GlooRanks& ranks) : most_ahead_(ranks.most_ahead), due_(ranks.due) {}

  // Whether somebody waits for the pair's lock, or has begun to: Gloo takes it where a step is
  // late.
  bool IsWanted() const { return wanted_ > 0 || std::chrono::steady_clock::now() >= due_->load(); }

  const int64_t most_ahead_;
  const std::shared_ptr<const std::atomic<Deadline>> due_;
  std::atomic<int64_t> ahead_ = 0;  // operations that came less those that are owed
  // Who wants the pair's lock from Gloo's thread, which would otherwise keep it for as long as the
  // peer sends.
  std::atomic<int> wanted_ = 0;
  std::atomic<int> inside_ = 0;  // Gloo's thread, which alone uses what follows
  int taken_ = 0;                // operations since it came in
  bool yielded_ = false;         // it left before it had taken all
};

class CheckedPair final : PairState, public tcp::Pair {
 public:
  CheckedPair(tcp::Context* context, tcp::Device* device, int peer,
              std::chrono::milliseconds timeout, const GlooRanks& ranks)
      : PairState(ranks), tcp::Pair(context, device, peer, timeout) {}

  // Gloo's thread has left when this returns. Bytes that were sent still arrive.
  ~CheckedPair() override {
    const Counted wanted(wanted_);
    {
      const std::lock_guard lock(m_);
      if (state_ != CLOSED) changeState(CLOSED);
    }
    while (inside_ > 0) std::this_thread::yield();
  }

  void connect(const std::vector<char>& address) override {
    const Counted wanted(wanted_);
    tcp::Pair::connect(address);
  }

  void send(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override {
    ahead_ -= 1;  // the peer says that it is ready
    const Counted wanted(wanted_);
    tcp::Pair::send(buffer, slot, offset, bytes);
  }

  void recv(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override {
    ahead_ -= 2;  // the peer says that it is ready, and sends
    const Counted wanted(wanted_);
    tcp::Pair::recv(buffer, slot, offset, bytes);
  }

  void close() override {
    const Counted wanted(wanted_);
    tcp::Pair::close();
  }

 private:
  // In Gloo's thread, which nothing thrown may leave. What it leaves it is called for again.
  void handleEvents(int events) override {
    const Counted inside(inside_);
    if (yielded_ && IsWanted()) return;
    yielded_ = false;
    taken_ = 0;
    try {
      tcp::Pair::handleEvents(events);
    } catch (const std::exception& error) {
      const std::unique_lock lock(m_, std::try_to_lock);
      if (lock) End(error.what());  // else who waits for the connection to be made has a limit
    }
  }

  // The pair's lock is held, here and below.
  void handleReadWrite(int events) override {
    try {
      tcp::Pair::handleReadWrite(events);
    } catch (const std::exception& error) {
      End(error.what());
    }
    if (state_ == CLOSED && ex_ != nullptr) TellThoseUnderWay();
  }

  // A connection that was taken, and is gone before it was made, is not known to the device yet,
  // which Gloo would ask to forget it.
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

  // One operation of the peer's; false where the rest of it, or its turn, is to come.
  bool read() override {
    if (tcp::Pair::read()) {
      if (++ahead_ > most_ahead_) return Refuse("more operations than a step has");
      yielded_ = ++taken_ >= kOfATurn && IsWanted();
      return !yielded_;
    }
    // Gloo's other kind of buffers, which there are none of: it would try again at once.
    const bool is_none =
        rx_.nread >= sizeof(rx_.preamble) && rx_.getOpcode() == tcp::Op::SEND_BUFFER;
    return is_none && Refuse("an operation that is none of a ring's");
  }

  bool Refuse(const char* what) {
    End(std::string("the peer sends ") + what);
    return false;
  }

  void End(const std::string& why) {
    if (ex_ == nullptr && state_ != CLOSED) signalException(why);
  }

  // Gloo tells the error to those who wait for operations that have not begun, and leaves the
  // others to their deadlines.
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
      : tcp::Context(std::move(device), ranks.rank, ranks.size), ranks_(ranks) {}

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    pairs_[peer] = std::make_unique<CheckedPair>(this, device_.get(), peer, getTimeout(), ranks_);
    return pairs_[peer];
  }

 private:
  const GlooRanks ranks_;
};

}  // namespace

std::shared_ptr<gloo::transport::Context> MakeGlooContext(
    const std::shared_ptr<gloo::transport::Device>& device, const GlooRanks& ranks) {
  return std::make_shared<CheckedContext>(std::dynamic_pointer_cast<tcp::Device>(device), ranks);
}

}  // namespace hilbert_ring
