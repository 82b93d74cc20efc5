// Limits open streams by peer, and the wait for a stream's first message.
//
//   auto place = gate.Enter(PeerHost(context->peer()), [](absl::Status why) { ... });
//   ...                                   // the first message comes
//   if (!place->Open()) return;           // too late: the call was cut off
//
// A peer is a host, with a limited number of calls. A call is silent until its first message. A
// silent call is cut off at the timeout, or earlier if its peer or CutOffOne needs the place.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"
#include "server/process/interval_thread.h"
#include "server/process/peer_network.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace hilbert_ring::server {

// Thread-safe.
class CallGate {
 private:
  struct Call;
  using Calls = std::list<std::shared_ptr<Call>>;

 public:
  struct Limits {
    int calls_per_peer = 0;
    std::chrono::milliseconds open_timeout{0};  // until the first message
    PeerIs peer = PeerIs::kNetwork;             // of BlockingPlace's calls
  };

  // A call's place until it is destroyed. The gate must outlive it.
  class Place {
   public:
    Place(Place&& other) noexcept : gate_(other.gate_), call_(std::move(other.call_)) {
      other.gate_ = nullptr;
    }
    Place& operator=(Place&&) = delete;
    ~Place();

    // Ends the wait for the first message. False if the call was cut off.
    [[nodiscard]] bool Open();

   private:
    friend class CallGate;
    Place(CallGate* gate, std::shared_ptr<Call> call) : gate_(gate), call_(std::move(call)) {}
    CallGate* gate_;  // null when moved from
    std::shared_ptr<Call> call_;
  };

  explicit CallGate(const Limits& limits);
  PeerIs peer() const { return limits_.peer; }
  ~CallGate();

  // RESOURCE_EXHAUSTED (TOO_MANY_CALLS) if the peer has too many calls and no silent one. Any
  // thread calls `cut_off` (CLIENT_IDLE, TOO_MANY_CALLS) without locks, at most once, perhaps after
  // the place is gone. It may hold the place, because it is dropped with the silence.
  absl::StatusOr<Place> Enter(const std::string& peer, std::function<void(absl::Status)> cut_off);

  // Cuts off the oldest silent call of the peer with most of them. False without silent calls.
  bool CutOffOne();

 private:
  struct Peer {
    int calls = 0;
    Calls silent;  // oldest first
  };
  struct Call {
    std::string peer;
    std::function<void(absl::Status)> cut_off;  // while silent
    Deadline due;
    bool silent = true;
    Calls::iterator place;    // in its peer's `silent`, while silent
    Calls::iterator in_turn;  // in silent_, while silent
  };

  // Ends the silence. The place still holds the call.
  std::function<void(absl::Status)> TakeOut(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutOffLate();

  const Limits limits_;
  Mutex mutex_;
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  Calls silent_ ABSL_GUARDED_BY(mutex_);  // by deadline
  IntervalThread watch_;                  // last: it uses all of the above
};

// A place of a call that blocks a thread. A cut-off cancels the context, which must outlive it.
class BlockingPlace {
 public:
  static absl::StatusOr<BlockingPlace> Enter(CallGate& gate, grpc::ServerContextBase& context);
  BlockingPlace(BlockingPlace&&) = default;
  ~BlockingPlace();

  [[nodiscard]] bool Open() { return place_.Open(); }  // after false: why()
  absl::Status why() const;

 private:
  struct Link {
    explicit Link(grpc::ServerContextBase& of) : context(&of) {}
    mutable Mutex mutex;
    grpc::ServerContextBase* context ABSL_GUARDED_BY(mutex);  // null once the call has ended
    absl::Status why ABSL_GUARDED_BY(mutex);
  };
  BlockingPlace(CallGate::Place place, std::shared_ptr<Link> link)
      : place_(std::move(place)), link_(std::move(link)) {}

  CallGate::Place place_;
  std::shared_ptr<Link> link_;  // shared with a cut-off under way
};

}  // namespace hilbert_ring::server
