#include "engine/comm/nccl_communicator.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "engine/comm/comm_step.h"
#include "engine/comm/nccl_session.h"
#include "engine/comm/nccl_step.h"

namespace hilbert_ring {
namespace {

using Clock = std::chrono::steady_clock;
using Ending = NcclSession::Ending;

// A step takes tens of microseconds and more, so polling is finer than that.
constexpr auto kStepPoll = std::chrono::microseconds(20);
constexpr auto kConnectPoll = std::chrono::milliseconds(1);

class NcclCommunicator : public Communicator {
 public:
  // session: null for a ring of one.
  NcclCommunicator(const NcclOptions& options, std::unique_ptr<NcclSession> session,
                   StepNotes notes)
      : rank_(options.rank),
        size_(options.size),
        session_(std::move(session)),
        notes_(std::move(notes)) {}

  ~NcclCommunicator() override {
    if (session_ == nullptr) return;
    // An orderly ending lets sent bytes leave. A posted step may never end, so it is aborted.
    session_->Close(posted_ ? Ending::kAbort : Ending::kOrderly);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "nccl"; }

  absl::Status Post(const CommStep& step) override {
    if (absl::Status status = CurrentStatus(); !status.ok()) return Release(std::move(status));
    if (posted_) return absl::FailedPreconditionError("a step is posted already");
    number_ = step.number;
    posted_ = true;
    peers_ = PeersOf(step);
    stage_ = Stage::kDone;
    if (session_ == nullptr) return absl::OkStatus();
    absl::Status started = session_->Inside([&](NcclEnd& end) {
      const std::vector<NcclTransfer> group = notes_.MakeGroup(step);
      if (group.empty()) return absl::OkStatus();
      stage_ = Stage::kStarting;
      absl::Status copied = end.CopyToDevice(notes_.sent_offset(), notes_.half_bytes());
      return copied.ok() ? end.Group(group) : copied;
    });
    return started.ok() ? started : Release(Failed(started));
  }

  absl::Status Wait(Deadline deadline) override {
    if (absl::Status status = CurrentStatus(); !status.ok()) {
      return Release(posted_ ? Failed(status) : std::move(status));
    }
    while (stage_ != Stage::kDone) {
      if (absl::Status status = Advance(); !status.ok()) return Release(Failed(status));
      if (stage_ == Stage::kDone) break;
      if (Clock::now() >= deadline) {
        return Release(Failed(absl::DeadlineExceededError("not done in time")));
      }
      std::this_thread::sleep_for(kStepPoll);
    }
    posted_ = false;
    return CurrentStatus();
  }

  void Abort(const std::string& reason) override {
    const MutexLock lock(mutex_);
    if (absl::IsAborted(status_)) return;
    Break(absl::AbortedError(reason));
  }

 private:
  enum class Stage {
    kStarting,  // NCCL has the group, but may not have put it on the stream yet
    kMoving,    // the stream has the group and the copy of its notes
    kDone,
  };

  absl::Status CurrentStatus() {
    const MutexLock lock(mutex_);
    return status_;
  }

  // Looks how far the step is, and moves stage_ on. CANCELLED while the session closes. The session
  // owns the memory of notes, so only calls inside the session touch it.
  absl::Status Advance() {
    return session_->Inside([&](NcclEnd& end) -> absl::Status {
      ASSIGN_OR_RETURN(const bool ready, end.Ready());
      if (!ready) return absl::OkStatus();
      if (stage_ == Stage::kStarting) {
        RETURN_IF_ERROR(end.CopyToHost(notes_.received_offset(), notes_.half_bytes()));
        stage_ = Stage::kMoving;
      }
      ASSIGN_OR_RETURN(const bool idle, end.Idle());
      if (!idle) return absl::OkStatus();
      absl::Status verified = notes_.Verify();
      if (verified.ok()) stage_ = Stage::kDone;
      return verified;
    });
  }

  // Breaks the communicator after an error of the posted step, unless it was aborted.
  absl::Status Failed(const absl::Status& error) {
    const MutexLock lock(mutex_);
    const std::string where = absl::StrCat("waited for ", peers_, " in step ", number_);
    if (absl::IsAborted(status_)) {
      if (stage_ != Stage::kDone) {
        status_ = absl::AbortedError(absl::StrCat(status_.message(), " (", where, ")"));
      }
    } else {
      Break(absl::Status(error.code(), absl::StrCat(where, ": ", error.message())));
    }
    return status_;
  }

  // Peers notice the abort by NCCL's connections. Without connections they wait to their deadline.
  void Break(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    status_ = std::move(status);
    if (session_ != nullptr) session_->Close(Ending::kAbort);
  }

  // Returns the error once NCCL has left the posted step's memory. INTERNAL with kMemoryInUse: NCCL
  // has not left it in time.
  absl::Status Release(absl::Status status) {
    if (!std::exchange(posted_, false) || session_ == nullptr) return status;
    absl::Status closed = session_->AwaitClosed();
    if (closed.ok()) return status;
    const MutexLock lock(mutex_);
    status_ = absl::InternalError(absl::StrCat(closed.message(), ", after: ", status.message()));
    status_.SetPayload(kMemoryInUse, absl::Cord());
    return status_;
  }

  const int rank_;
  const int size_;
  const std::unique_ptr<NcclSession> session_;
  StepNotes notes_;
  int64_t number_ = -1;  // of the last step
  bool posted_ = false;
  std::string peers_;  // of the last step
  Stage stage_ = Stage::kDone;

  Mutex mutex_;  // taken before the session's
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::string> ShareId(const NcclOptions& options, const AllGather& all_gather,
                                    NcclEnd& end) {
  const std::string ring = options.ring + '\0';
  std::string own = ring;
  if (options.rank == 0) {
    ASSIGN_OR_RETURN(const std::string id, end.UniqueId());
    own += id;
  }
  ASSIGN_OR_RETURN(const auto blobs, all_gather(own, options.deadline));
  if (blobs.size() != static_cast<size_t>(options.size)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the rendezvous gave ", blobs.size(), " blobs for ", options.size, " ranks"));
  }
  for (int peer = 0; peer < options.size; ++peer) {
    const std::string& blob = blobs[peer];
    if (!absl::StartsWith(blob, ring) || (peer == 0) != (blob.size() > ring.size())) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", peer, " is not of ring '", options.ring, "'"));
    }
  }
  return blobs[0].substr(ring.size());
}

absl::Status AwaitConnected(const NcclOptions& options, NcclSession& session) {
  while (true) {
    bool connected = false;
    absl::Status status = session.Inside([&](NcclEnd& end) -> absl::Status {
      ASSIGN_OR_RETURN(connected, end.Ready());
      return absl::OkStatus();
    });
    if (!status.ok() || connected) return status;
    if (options.cancelled && options.cancelled()) {
      return absl::CancelledError("cancelled while connecting to the ring");
    }
    if (Clock::now() >= options.deadline) {
      return absl::DeadlineExceededError("connecting to the ring");
    }
    std::this_thread::sleep_for(kConnectPoll);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinNcclRing(const NcclOptions& options,
                                                           const AllGather& all_gather,
                                                           std::unique_ptr<NcclEnd> end) {
  if (options.size == 1) {
    return std::make_unique<NcclCommunicator>(options, nullptr, StepNotes({}, 0));
  }
  ASSIGN_OR_RETURN(const std::string id, ShareId(options, all_gather, *end));
  ASSIGN_OR_RETURN(const auto staging, end->AllocateStaging(StepNotes::BytesFor(options.size)));
  std::unique_ptr<NcclSession> session = NcclSession::Begin(std::move(end));
  absl::Status status = session->Inside([&](NcclEnd& own) {
    return own.Init(
        {.rank = options.rank, .size = options.size, .id = id, .max_ctas = options.max_ctas});
  });
  if (status.ok()) status = AwaitConnected(options, *session);
  RETURN_IF_ERROR(status);
  return std::make_unique<NcclCommunicator>(options, std::move(session),
                                            StepNotes(staging, options.size));
}

}  // namespace hilbert_ring
