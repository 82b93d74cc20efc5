#include "server/process/call_gate.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/server_context.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

absl::Status TooLate(std::chrono::milliseconds timeout) {
  return wire::ErrorOf(wire::reason::kClientIdle,
                       absl::StrCat("the first message did not come within ", timeout.count(),
                                    " ms (--open-timeout)"));
}

absl::Status GaveWay() {
  return wire::ErrorOf(
      wire::reason::kTooManyCalls,
      "too many calls are open, this one without a first message gave way to another");
}

}  // namespace

CallGate::CallGate(const Limits& limits)
    : limits_(limits),
      watch_(limits.open_timeout / 20 + std::chrono::milliseconds(1),
             [this](const std::stop_token&) { CutOffLate(); }) {}

CallGate::~CallGate() = default;

absl::StatusOr<CallGate::Place> CallGate::Enter(const std::string& peer,
                                                std::function<void(absl::Status)> cut_off) {
  auto call = std::make_shared<Call>();
  std::function<void(absl::Status)> instead;
  {
    const MutexLock lock(mutex_);
    Peer& entry = peers_[peer];
    if (entry.calls >= limits_.calls_per_peer) {
      if (entry.silent.empty()) {
        return wire::ErrorOf(wire::reason::kTooManyCalls,
                             absl::StrCat("too many calls are open: ", peer, " has ", entry.calls,
                                          ", the limit of a peer is ", limits_.calls_per_peer,
                                          " (--max-calls-per-peer)"));
      }
      instead = TakeOut(*entry.silent.front());
    }
    ++entry.calls;
    call->peer = peer;
    call->cut_off = std::move(cut_off);
    call->due = Clock::now() + limits_.open_timeout;
    call->place = entry.silent.insert(entry.silent.end(), call);
    call->in_turn = silent_.insert(silent_.end(), call);
  }
  if (instead) instead(GaveWay());
  return Place(this, std::move(call));
}

std::function<void(absl::Status)> CallGate::TakeOut(Call& call) {
  peers_[call.peer].silent.erase(call.place);
  silent_.erase(call.in_turn);
  call.silent = false;
  return std::exchange(call.cut_off, nullptr);
}

bool CallGate::Place::Open() {
  std::function<void(absl::Status)> unused;  // destroyed without the lock
  const MutexLock lock(gate_->mutex_);
  if (!call_->silent) return false;
  unused = gate_->TakeOut(*call_);
  return true;
}

CallGate::Place::~Place() {
  if (gate_ == nullptr) return;
  std::function<void(absl::Status)> unused;
  const MutexLock lock(gate_->mutex_);
  if (call_->silent) unused = gate_->TakeOut(*call_);
  const auto peer = gate_->peers_.find(call_->peer);
  if (--peer->second.calls == 0) gate_->peers_.erase(peer);
}

bool CallGate::CutOffOne() {
  std::function<void(absl::Status)> cut_off;
  {
    const MutexLock lock(mutex_);
    const auto most =
        std::max_element(peers_.begin(), peers_.end(), [](const auto& a, const auto& b) {
          return a.second.silent.size() < b.second.silent.size();
        });
    if (most == peers_.end() || most->second.silent.empty()) return false;
    cut_off = TakeOut(*most->second.silent.front());
  }
  cut_off(GaveWay());
  return true;
}

void CallGate::CutOffLate() {
  while (true) {
    std::function<void(absl::Status)> cut_off;
    {
      const MutexLock lock(mutex_);
      if (silent_.empty() || Clock::now() < silent_.front()->due) return;
      cut_off = TakeOut(*silent_.front());
    }
    cut_off(TooLate(limits_.open_timeout));
  }
}

absl::StatusOr<BlockingPlace> BlockingPlace::Enter(CallGate& gate,
                                                   grpc::ServerContextBase& context) {
  auto link = std::make_shared<Link>(context);
  auto place = gate.Enter(PeerHost(context.peer(), gate.peer()), [link](absl::Status why) {
    const MutexLock lock(link->mutex);
    if (link->context == nullptr) return;
    link->why = std::move(why);
    link->context->TryCancel();
  });
  RETURN_IF_ERROR(place.status());
  return BlockingPlace(*std::move(place), std::move(link));
}

BlockingPlace::~BlockingPlace() {
  if (link_ == nullptr) return;
  const MutexLock lock(link_->mutex);
  link_->context = nullptr;
}

absl::Status BlockingPlace::why() const {
  const MutexLock lock(link_->mutex);
  return link_->why;
}

}  // namespace hilbert_ring::server
