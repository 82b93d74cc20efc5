#include "engine/comm/nccl_session.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"

namespace hilbert_ring {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(1);

}  // namespace

std::unique_ptr<NcclSession> NcclSession::Begin(std::unique_ptr<NcclEnd> end) {
  std::unique_ptr<NcclSession> session(new NcclSession);
  session->state_->end = std::move(end);
  session->closer_ = std::thread([state = session->state_] { CloseWhenAsked(*state); });
  return session;
}

NcclSession::~NcclSession() {
  bool asked = false;
  {
    const MutexLock lock(state_->mutex);
    asked = state_->ending != Ending::kNone;
  }
  if (!asked) Close(Ending::kAbort);
  if (AwaitClosed().ok()) {
    closer_.join();
  } else {
    closer_.detach();
  }
}

absl::Status NcclSession::Inside(const std::function<absl::Status(NcclEnd& end)>& call) {
  const MutexLock lock(state_->mutex);
  if (state_->ending != Ending::kNone) return absl::CancelledError("being closed");
  return call(*state_->end);
}

void NcclSession::Close(Ending ending) {
  const MutexLock lock(state_->mutex);
  if (state_->ending != Ending::kAbort) state_->ending = ending;
  state_->changed.notify_all();
}

absl::Status NcclSession::AwaitClosed() {
  MutexLock lock(state_->mutex);
  if (state_->changed.wait_for(
          lock, kCloseLimit,
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) { return state_->closed; })) {
    return absl::OkStatus();
  }
  return absl::InternalError("NCCL still holds the step's memory");
}

void NcclSession::CloseWhenAsked(State& state) {
  {
    MutexLock lock(state.mutex);
    state.changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) {
      return state.ending != Ending::kNone;
    });
  }
  if (LeaveOrderly(state)) {
    state.end->Destroy();
  } else {
    state.end->Abort();
  }
  // Kernels check the abort flag before each piece that they move. A GPU that hangs keeps this
  // thread here, because memory that a kernel may still write to must not be freed.
  for (absl::StatusOr<bool> idle = state.end->Idle(); idle.ok() && !*idle;
       idle = state.end->Idle()) {
    std::this_thread::sleep_for(kPoll);
  }
  state.end.reset();
  const MutexLock lock(state.mutex);
  state.closed = true;
  state.changed.notify_all();
}

bool NcclSession::LeaveOrderly(State& state) {
  const Clock::time_point limit = Clock::now() + kOrderlyLimit;
  MutexLock lock(state.mutex);
  if (state.ending != Ending::kOrderly || !state.end->Finalize().ok()) return false;
  while (state.ending == Ending::kOrderly && Clock::now() < limit) {
    const absl::StatusOr<bool> ready = state.end->Ready();
    if (!ready.ok()) return false;
    if (*ready) return true;
    state.changed.wait_for(lock, kPoll);
  }
  return false;
}

}  // namespace hilbert_ring
