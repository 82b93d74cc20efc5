// The life of an NcclEnd: who may be inside NCCL, and how it is left.
//
//   auto session = NcclSession::Begin(std::move(end));
//   session->Inside([](NcclEnd& end) { return end.Group(transfers); });
//   session->Close(NcclSession::Ending::kAbort);        // from any thread; returns at once
//   session->AwaitClosed();                             // GPU memory is not in use any more
//
// NCCL must be aborted while no other thread is inside it, and an abort may take its time. So a
// thread of the session's own does it, once the call in progress has returned; later calls are
// refused. (ncclCommRevoke of newer versions keeps a communicator for shrinking; a ring is given up
// as a whole, for which abort is enough, in all versions.)
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/comm/nccl_end.h"

namespace hilbert_ring {

// Thread-safe.
class NcclSession {
 public:
  enum class Ending {
    kNone,
    kOrderly,  // with peers that are there; an abort when they do not take part in time
    kAbort,
  };

  static std::unique_ptr<NcclSession> Begin(std::unique_ptr<NcclEnd> end);

  // Closes, by abort unless Close was called, and waits for it for a limited time. What NCCL does
  // not let go of by then is left to it.
  ~NcclSession();

  // Runs a call alone; its status, CANCELLED once the session is being closed.
  absl::Status Inside(const std::function<absl::Status(NcclEnd& end)>& call);

  // An abort may follow an orderly ending that is under way, not the other way round.
  void Close(Ending ending);

  // INTERNAL when NCCL still has hold of memory after `kCloseLimit`.
  absl::Status AwaitClosed();

  // Aborts end within milliseconds; a GPU or driver that hangs is all that takes longer.
  static constexpr std::chrono::seconds kCloseLimit{5};
  // For the peers of an orderly ending, which on one host wait for each other.
  static constexpr std::chrono::seconds kOrderlyLimit{2};

 private:
  struct State {
    Mutex mutex;  // held by whoever is inside NCCL, but for the ending itself
    ConditionVariable changed;
    std::unique_ptr<NcclEnd> end;  // used under mutex until `ending` is set, then by the thread
    Ending ending ABSL_GUARDED_BY(mutex) = Ending::kNone;
    bool closed ABSL_GUARDED_BY(mutex) = false;
  };

  NcclSession() = default;
  static void CloseWhenAsked(State& state);
  static bool LeaveOrderly(State& state);

  // Shared with the thread, which outlives the session when NCCL hangs.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread closer_;
};

}  // namespace hilbert_ring
