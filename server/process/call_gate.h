// Who may have a stream open, and how long one may say nothing.
//
//   auto place = gate.Enter(PeerHost(context->peer()), [](absl::Status why) { ... });
//   ...                                   // the first message comes
//   if (!place->Open()) return;           // it came too late: the call was cut off
//
// A peer is a host. It has a number of calls at most; a call that has said nothing until the
// timeout is cut off, and before that where its peer, or anybody, needs the place: the oldest of
// the peer that has most of them. So calls that say nothing keep nobody out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"
#include "server/process/peer_network.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace hilbert_ring::server {

// The host of what gRPC calls a peer: "ipv4:10.0.0.7:41234" is "10.0.0.7"; see peer_network.h for
// those of IPv6.
std::string PeerHost(const std::string& peer, PeerIs is = PeerIs::kNetwork);

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

  // A call's place; gone with it. The gate must outlive it.
  class Place {
   public:
    Place(Place&& other) noexcept : gate_(other.gate_), call_(std::move(other.call_)) {
      other.gate_ = nullptr;
    }
    Place& operator=(Place&&) = delete;
    ~Place();

    // The first message has come, or none will. False when the call is cut off.
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

  // RESOURCE_EXHAUSTED (TOO_MANY_CALLS) when the peer has too many calls that have said something.
  // `cut_off` is called once at most, while the place is not open, by any thread and without locks:
  // with DEADLINE_EXCEEDED (CLIENT_IDLE) or RESOURCE_EXHAUSTED (TOO_MANY_CALLS). It may still run
  // when the place is gone. What it holds is kept until it has run, or the place is open or gone:
  // it may hold the place.
  absl::StatusOr<Place> Enter(const std::string& peer, std::function<void(absl::Status)> cut_off);

  // Cuts off the oldest call that has said nothing, of the peer that has most of them. False when
  // there is none.
  bool CutOffOne();

 private:
  struct Peer {
    int calls = 0;
    Calls silent;  // that have said nothing, the oldest first
  };
  struct Call {
    std::string peer;
    std::function<void(absl::Status)> cut_off;  // while it is silent
    Deadline due;
    bool silent = true;
    Calls::iterator place;    // in its peer's silent ones, while it is
    Calls::iterator in_turn;  // in silent_, while it is
  };

  // From here on it is not silent any more. Its place holds it beside the lists.
  std::function<void(absl::Status)> TakeOut(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutOffLate(const std::stop_token& stop);

  const Limits limits_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  Calls silent_ ABSL_GUARDED_BY(mutex_);            // by deadline
  Deadline watched_until_ ABSL_GUARDED_BY(mutex_);  // until when the watch sleeps
  std::jthread watch_;                              // last: it uses all of the above
};

// A place of a call that blocks a thread: cut off, the call is cancelled.
class BlockingPlace {
 public:
  // Errors as of CallGate::Enter. The context must outlive it.
  static absl::StatusOr<BlockingPlace> Enter(CallGate& gate, grpc::ServerContextBase& context);
  BlockingPlace(BlockingPlace&&) = default;
  ~BlockingPlace();

  // As of CallGate::Place; when it is false, why() says why.
  [[nodiscard]] bool Open() { return place_.Open(); }
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
  std::shared_ptr<Link> link_;  // shared with a cut-off that is under way
};

}  // namespace hilbert_ring::server
