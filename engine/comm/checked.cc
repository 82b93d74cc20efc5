#include "engine/comm/checked.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/peer_error.h"
#include "engine/base/return_if_error.h"
#include "engine/comm/comm_step.h"

namespace hilbert_ring {
namespace {

// Bytes between two checks of Abort: about 1 ms.
constexpr int64_t kPieceBytes = int64_t{8} << 20;

uint32_t Crc32c(uint32_t before, const void* data, int64_t bytes) {
  return crc32_iscsi(static_cast<unsigned char*>(const_cast<void*>(data)), static_cast<int>(bytes),
                     before);
}

uint32_t SeedOf(int from, int to, const TransferKey& key) {
  static_assert(std::endian::native == std::endian::little, "ranks agree on the order of bytes");
  const std::array<int64_t, 5> identity = {from, to, key.step, key.place, key.bytes};
  return Crc32c(~uint32_t{0}, identity.data(), sizeof(identity));
}

class CheckedCommunicator : public Communicator {
 public:
  explicit CheckedCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }

  absl::Status Post(const CommStep& step) override {
    RETURN_IF_ERROR(lost_);
    if (posted_) return inner_->Post(step);  // returns the error
    number_ = step.number;
    CommStep doubled{.number = step.number};
    ListSends(step, doubled);
    ListReceives(step, doubled);
    absl::Status status = inner_->Post(doubled);
    if (status.ok()) {
      posted_ = true;
    } else {
      arrivals_.clear();
    }
    return status;
  }

  absl::Status Wait(Deadline deadline) override {
    RETURN_IF_ERROR(lost_);
    absl::Status status = inner_->Wait(deadline);
    posted_ = false;
    const std::vector<Arrival> arrivals = std::exchange(arrivals_, {});
    RETURN_IF_ERROR(status);
    for (const Arrival& arrival : arrivals) {
      const std::optional<uint32_t> checksum = Checksum(arrival.data, arrival.bytes, arrival.seed);
      if (!checksum) return inner_->Wait(deadline);
      if (*checksum == received_[arrival.index]) continue;
      lost_ =
          WithPeer(absl::DataLossError(absl::StrCat(
                       "from rank ", arrival.peer, " in step ", number_, ", receives[",
                       arrival.index, "]: CRC32C is ", absl::Hex(*checksum, absl::kZeroPad8),
                       ", the sender's ", absl::Hex(received_[arrival.index], absl::kZeroPad8))),
                   arrival.peer);
      inner_->Abort(std::string(lost_.message()));
      return lost_;
    }
    return absl::OkStatus();
  }

  void Abort(const std::string& reason) override {
    inner_->Abort(reason);
    aborted_ = true;
  }

 private:
  struct Arrival {
    int peer = 0;
    size_t index = 0;  // in the step's receives
    const void* data = nullptr;
    int64_t bytes = 0;
    uint32_t seed = 0;
  };

  // Returns nullopt after an abort. The caller then returns the inner communicator's status.
  std::optional<uint32_t> Checksum(const void* data, int64_t bytes, uint32_t seed) const {
    const auto* next = static_cast<const unsigned char*>(data);
    uint32_t checksum = seed;
    while (bytes > 0) {
      if (aborted_) return std::nullopt;
      const int64_t piece = std::min(bytes, kPieceBytes);
      checksum = Crc32c(checksum, next, piece);
      next += piece;
      bytes -= piece;
    }
    return ~checksum;
  }

  // An empty transfer gets an empty checksum, so the places of transfers stay equal at both ends.
  static int64_t ChecksumBytes(int64_t bytes) { return bytes > 0 ? sizeof(uint32_t) : 0; }

  void ListSends(const CommStep& step, CommStep& doubled) {
    TransferKeys keys(step.number, size());
    sent_.resize(step.sends.size());
    for (size_t i = 0; i < step.sends.size(); ++i) {
      const Send& send = step.sends[i];
      const uint32_t seed = SeedOf(rank(), send.peer, keys.Next(send.peer, send.bytes));
      sent_[i] = Checksum(send.data, send.bytes, seed).value_or(0);
      doubled.sends.push_back(send);
      doubled.sends.push_back(
          {.peer = send.peer, .data = &sent_[i], .bytes = ChecksumBytes(send.bytes)});
    }
  }

  void ListReceives(const CommStep& step, CommStep& doubled) {
    TransferKeys keys(step.number, size());
    received_.assign(step.receives.size(), 0);
    for (size_t i = 0; i < step.receives.size(); ++i) {
      const Receive& receive = step.receives[i];
      const uint32_t seed = SeedOf(receive.peer, rank(), keys.Next(receive.peer, receive.bytes));
      doubled.receives.push_back(receive);
      doubled.receives.push_back(
          {.peer = receive.peer, .data = &received_[i], .bytes = ChecksumBytes(receive.bytes)});
      if (receive.bytes == 0) continue;
      arrivals_.push_back({.peer = receive.peer,
                           .index = i,
                           .data = receive.data,
                           .bytes = receive.bytes,
                           .seed = seed});
    }
  }

  int64_t number_ = -1;  // of the last step
  bool posted_ = false;
  absl::Status lost_;               // not OK: DATA_LOSS
  std::vector<uint32_t> sent_;      // checksums of the posted step, by place in its sends
  std::vector<uint32_t> received_;  // by place in its receives
  std::vector<Arrival> arrivals_;   // of the posted step
  std::atomic<bool> aborted_ = false;
  const std::unique_ptr<Communicator> inner_;  // last: its transfers use the memory above
};

}  // namespace

std::unique_ptr<Communicator> MakeChecked(std::unique_ptr<Communicator> inner) {
  return std::make_unique<CheckedCommunicator>(std::move(inner));
}

}  // namespace hilbert_ring
