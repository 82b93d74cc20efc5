#include "tests/conformance/faulty.h"

#include <map>
#include <thread>
#include <utility>

namespace hilbert_ring::testing {
namespace {

using Bytes = std::vector<unsigned char>;

class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Faults> faults)
      : faults_(std::move(faults)), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }

  absl::Status Post(const CommStep& step) override {
    const FaultOptions& options = faults_->options();
    if (faults_->Happens(options.delay)) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(faults_->Draw(options.longest_delay.count() + 1)));
    }
    CommStep sent = step;
    std::vector<Bytes> copies;
    for (Send& send : sent.sends) {
      const auto* data = static_cast<const unsigned char*>(send.data);
      copies.emplace_back(data, data + send.bytes);
      send.data = copies.back().data();
    }
    std::vector<Bytes> before = copies;
    std::swap(before, before_);
    if (faults_->Happens(options.repeat)) Repeat(before, sent);
    if (faults_->Happens(options.reorder)) Reorder(sent);
    for (Send& send : sent.sends) {
      if (send.bytes == 0) continue;
      if (faults_->Happens(options.corrupt)) Corrupt(send);
      if (faults_->Happens(options.drop)) Drop(send);
    }
    absl::Status status = inner_->Post(sent);
    if (status.ok()) {
      copies_ = std::move(copies);
      repeated_ = std::move(before);
    }
    return status;
  }

  absl::Status Wait(Deadline deadline) override { return inner_->Wait(deadline); }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }

 private:
  void Repeat(const std::vector<Bytes>& before, CommStep& step) {
    for (size_t i = 0; i < std::min(before.size(), step.sends.size()); ++i) {
      Send& send = step.sends[i];
      if (send.bytes == 0 || static_cast<int64_t>(before[i].size()) != send.bytes) continue;
      send.data = before[i].data();
      faults_->Count();
    }
  }

  void Reorder(CommStep& step) {
    for (size_t i = 0; i < step.sends.size(); ++i) {
      for (size_t j = i + 1; j < step.sends.size(); ++j) {
        Send &a = step.sends[i], &b = step.sends[j];
        if (a.peer != b.peer || a.bytes != b.bytes || a.bytes == 0) continue;
        std::swap(a.data, b.data);
        faults_->Count();
        return;
      }
    }
  }

  void Corrupt(const Send& send) {
    auto* data = static_cast<unsigned char*>(const_cast<void*>(send.data));  // a copy
    data[faults_->Draw(send.bytes)] ^= static_cast<unsigned char>(1 << faults_->Draw(8));
    faults_->Count();
  }

  // The peer waits for bytes that never come.
  void Drop(Send& send) {
    send.bytes = 0;
    faults_->Count();
  }

  const std::shared_ptr<Faults> faults_;       // shared by the ranks
  std::vector<Bytes> before_;                  // what the last step's sends should have been
  std::vector<Bytes> copies_, repeated_;       // of the posted step
  const std::unique_ptr<Communicator> inner_;  // last: it uses the memory above
};

}  // namespace

bool Faults::Happens(double chance) {
  const std::lock_guard lock(mutex_);
  return std::bernoulli_distribution(chance)(random_);
}

int64_t Faults::Draw(int64_t below) {
  const std::lock_guard lock(mutex_);
  return std::uniform_int_distribution<int64_t>(0, below - 1)(random_);
}

std::unique_ptr<Communicator> MakeFaulty(std::unique_ptr<Communicator> inner,
                                         std::shared_ptr<Faults> faults) {
  return std::make_unique<FaultyCommunicator>(std::move(inner), std::move(faults));
}

}  // namespace hilbert_ring::testing
