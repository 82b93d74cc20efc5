#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/peer_error.h"
#include "engine/base/return_if_error.h"
#include "engine/comm/comm_step.h"
#include "engine/comm/communicator.h"
#include "engine/comm/gloo_mesh.h"

namespace hilbert_ring {
namespace {

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The slot covers sizes, because Gloo completes a receive by a shorter send of equal slot.
uint64_t SlotOf(const TransferKey& key) {
  return Mix(Mix(Mix(key.step) ^ static_cast<uint64_t>(key.place)) ^
             static_cast<uint64_t>(key.bytes));
}

class GlooCommunicator : public Communicator {
 public:
  // mesh: null for a ring of one.
  GlooCommunicator(const GlooOptions& options, std::unique_ptr<GlooMesh> mesh)
      : rank_(options.rank), size_(options.size), mesh_(std::move(mesh)) {}

  ~GlooCommunicator() override {
    if (posted_) {
      const MutexLock lock(mutex_);
      Break(absl::UnavailableError("destroyed"));
    }
    transfers_.clear();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "gloo"; }

  absl::Status Post(const CommStep& step) override {
    if (absl::Status status = CurrentStatus(); !status.ok()) return Release(std::move(status));
    if (posted_) return absl::FailedPreconditionError("a step is posted already");
    number_ = step.number;
    posted_ = true;
    // Receives start first: rows sent already arrive while this rank's sends start.
    TransferKeys receive_keys(step.number, size_);
    for (const Receive& receive : step.receives) {
      const TransferKey key = receive_keys.Next(receive.peer, receive.bytes);
      if (key.bytes == 0) continue;
      absl::Status status = Add(receive.peer, mesh_->StartReceive(receive, SlotOf(key)));
      if (!status.ok()) return Release(std::move(status));
    }
    TransferKeys send_keys(step.number, size_);
    for (const Send& send : step.sends) {
      const TransferKey key = send_keys.Next(send.peer, send.bytes);
      if (key.bytes == 0) continue;
      absl::Status status = Add(send.peer, mesh_->StartSend(send, SlotOf(key)));
      if (!status.ok()) return Release(std::move(status));
    }
    return absl::OkStatus();
  }

  absl::Status Wait(Deadline deadline) override {
    if (absl::Status status = CurrentStatus(); !status.ok()) return Release(std::move(status));
    for (const std::unique_ptr<GlooTransfer>& transfer : transfers_) {
      absl::Status status = transfer->Wait(deadline);
      if (!status.ok()) return Release(Failed(transfer->peer(), status));
    }
    const MutexLock lock(mutex_);
    transfers_.clear();
    posted_ = false;
    return status_;
  }

  void Abort(const std::string& reason) override {
    const MutexLock lock(mutex_);
    if (absl::IsAborted(status_)) return;
    for (const std::unique_ptr<GlooTransfer>& transfer : transfers_) transfer->Stop();
    Break(absl::AbortedError(reason));
  }

 private:
  absl::Status CurrentStatus() {
    const MutexLock lock(mutex_);
    return status_;
  }

  absl::Status Add(int peer, absl::StatusOr<std::unique_ptr<GlooTransfer>> started) {
    if (!started.ok()) return Failed(peer, started.status());
    const MutexLock lock(mutex_);
    transfers_.push_back(*std::move(started));
    return status_;
  }

  // Breaks the communicator after an error of a transfer with `peer`; returns its status.
  absl::Status Failed(int peer, const absl::Status& error) {
    const MutexLock lock(mutex_);
    const std::string where = absl::StrCat("waited for rank ", peer, " in step ", number_);
    if (absl::IsAborted(status_)) {
      status_ = absl::AbortedError(absl::StrCat(status_.message(), " (", where, ")"));
    } else {
      Break(WithPeer(absl::Status(error.code(), absl::StrCat(where, ": ", error.message())), peer));
    }
    return status_;
  }

  void Break(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    status_ = std::move(status);
    if (mesh_ != nullptr) mesh_->Close();
  }

  // The posted step's memory is out of use before the caller gets the error.
  absl::Status Release(absl::Status status) {
    const MutexLock lock(mutex_);
    transfers_.clear();
    posted_ = false;
    return status;
  }

  const int rank_;
  const int size_;
  const std::unique_ptr<GlooMesh> mesh_;
  int64_t number_ = -1;  // of the last step
  bool posted_ = false;

  Mutex mutex_;  // also guards mesh_->Close
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<GlooTransfer>> transfers_;  // Post and Wait change it under mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const GlooOptions& options,
                                                                   const AllGather& all_gather) {
  std::unique_ptr<GlooMesh> mesh;
  if (options.size > 1) {
    ASSIGN_OR_RETURN(mesh, GlooMesh::Connect(options, all_gather));
  }
  return std::make_unique<GlooCommunicator>(options, std::move(mesh));
}

}  // namespace hilbert_ring
