#include "tests/conformance/faulty.h"

#include <span>
#include <utility>
#include <vector>

namespace hilbert_ring::testing {
namespace {

using Bytes = std::vector<unsigned char>;

class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, Fault fault)
      : fault_(fault), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }

  absl::Status Post(const CommStep& step) override {
    CommStep sent = step;
    std::vector<Bytes> copies;
    for (Send& send : sent.sends) {
      const auto* data = static_cast<const unsigned char*>(send.data);
      copies.emplace_back(data, data + send.bytes);
      send.data = copies.back().data();
    }
    std::swap(copies, before_);
    for (size_t i = 0; i < sent.sends.size(); ++i) Spoil(sent, i, copies);
    absl::Status status = inner_->Post(sent);
    if (status.ok()) repeated_ = std::move(copies);
    return status;
  }

  absl::Status Wait(Deadline deadline) override { return inner_->Wait(deadline); }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  void Spoil(CommStep& step, size_t i, std::vector<Bytes>& before) {
    Send& send = step.sends[i];
    if (send.bytes == 0) return;
    switch (fault_) {
      case Fault::kCorrupt:
        before_[i][send.bytes / 2] ^= 4;
        break;
      case Fault::kReorder:
        if (i > 0) return;
        for (Send& other : std::span(step.sends).subspan(1)) {
          if (other.peer != send.peer || other.bytes != send.bytes) continue;
          std::swap(send.data, other.data);
          return;
        }
        break;
      case Fault::kRepeat:
        if (i < before.size() && std::ssize(before[i]) == send.bytes) send.data = before[i].data();
        break;
    }
  }

  const Fault fault_;
  std::vector<Bytes> before_;                  // of the posted step
  std::vector<Bytes> repeated_;                // of the step before it
  const std::unique_ptr<Communicator> inner_;  // last: it uses the memory above
};

}  // namespace

std::unique_ptr<Communicator> MakeFaulty(std::unique_ptr<Communicator> inner, Fault fault) {
  return std::make_unique<FaultyCommunicator>(std::move(inner), fault);
}

}  // namespace hilbert_ring::testing
