// The life of an NcclEnd: which thread may call NCCL, and how its use ends.
//
//   auto session = NcclSession::Begin(std::move(end));
//   session->Inside([](NcclEnd& end) { return end.Group(transfers); });
//   session->Close(NcclSession::Ending::kAbort);        // from any thread; returns at once
//   session->AwaitClosed();                             // GPU memory is not in use any more
//
// An abort requires that no other thread is inside NCCL, and may take long. A thread of the
// session's own does it after the call in progress; later calls are refused. (ncclCommRevoke of
// newer versions serves shrinking. A ring ends as a whole, so abort is enough, in all versions.)
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
    kOrderly,  // with peers that take part; becomes an abort if they do not in time
    kAbort,
  };

  static std::unique_ptr<NcclSession> Begin(std::unique_ptr<NcclEnd> end);

  // Closes, by abort unless Close was called, and leaks memory that NCCL holds after kCloseLimit.
  ~NcclSession();

  // Runs a call while no other runs. Returns its status, or CANCELLED once the session closes.
  absl::Status Inside(const std::function<absl::Status(NcclEnd& end)>& call);

  // An abort may follow an orderly ending in progress; the reverse has no effect.
  void Close(Ending ending);

  // INTERNAL: NCCL still holds memory after `kCloseLimit`.
  absl::Status AwaitClosed();

  // Aborts take milliseconds, except on a GPU or driver that hangs.
  static constexpr std::chrono::seconds kCloseLimit{5};
  // Time for an orderly ending, in which peers on one host wait for each other.
  static constexpr std::chrono::seconds kOrderlyLimit{2};

 private:
  struct State {
    Mutex mutex;  // held inside NCCL, except during the ending itself
    ConditionVariable changed;
    std::unique_ptr<NcclEnd> end;  // under mutex until `ending` is set, then the closer thread's
    Ending ending ABSL_GUARDED_BY(mutex) = Ending::kNone;
    bool closed ABSL_GUARDED_BY(mutex) = false;
  };

  NcclSession() = default;
  static void CloseWhenAsked(State& state);
  static bool LeaveOrderly(State& state);

  // Shared with the closer thread, which outlives the session if NCCL hangs.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread closer_;
};

}  // namespace hilbert_ring
