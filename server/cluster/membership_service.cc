#include "server/cluster/membership_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "grpcpp/client_context.h"
#include "server/process/peer_network.h"
#include "server/process/tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(2);
constexpr auto kFirstPause = std::chrono::milliseconds(250);
constexpr auto kLongestPause = std::chrono::seconds(10);
constexpr int kMostMisses = 2;  // in a row: a busy machine may miss one call

// Calls a worker at its address before it gets jobs: a worker that only sends heartbeats (no
// --host, an address translation, a firewall) fails every job. An idle worker gets calls again
// because translations and firewalls change.
class Greeting {
 public:
  // `membership` must outlive it. interval: between calls to a worker that is up.
  Greeting(Membership& membership, std::shared_ptr<const Member> member, Clock::duration interval);

  ~Greeting();  // cancels a call under way

  // Calls the worker if no call is under way and the pause is over. The pause grows until the
  // worker answers; then it is `interval`, and a busy worker gets no call. Reports each result to
  // the membership; a worker that has answered may miss one call.
  void Continue();

 private:
  void Ended(const grpc::Status& status);

  Membership& membership_;
  const std::shared_ptr<const Member> member_;
  const Clock::duration interval_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::GreetRequest request_;
  v1::GreetResponse response_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  int misses_ ABSL_GUARDED_BY(mutex_) = 0;  // in a row, since it answered
  Clock::duration pause_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point next_ ABSL_GUARDED_BY(mutex_);
};

Greeting::Greeting(Membership& membership, std::shared_ptr<const Member> member,
                   Clock::duration interval)
    : membership_(membership),
      member_(std::move(member)),
      interval_(interval),
      pause_(kFirstPause) {}

Greeting::~Greeting() {
  MutexLock lock(mutex_);
  if (under_way_) context_->TryCancel();
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !under_way_; });
}

void Greeting::Continue() {
  {
    const MutexLock lock(mutex_);
    if (under_way_ || Clock::now() < next_) return;
    if (answered_ && !membership_.Idle(*member_)) return;
    under_way_ = true;
  }
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(OnSystemClock(Clock::now() + kAnswerLimit));
  AddCallToken(*context_, member_->secret, "Greet");
  member_->stub->async()->Greet(context_.get(), &request_, &response_,
                                [this](const grpc::Status& status) { Ended(status); });
}

void Greeting::Ended(const grpc::Status& status) {
  const absl::Status answer = wire::FromGrpc(status);
  bool missed = false;  // and may miss it
  {
    const MutexLock lock(mutex_);
    missed = !answer.ok() && answered_ && ++misses_ < kMostMisses;
  }
  if (missed) {
    // The next heartbeat calls again.
  } else if (answer.ok()) {
    membership_.Reached(*member_);
  } else if (absl::IsUnauthenticated(answer)) {
    membership_.NotReached(*member_, "another process answers there");
  } else if (absl::IsDeadlineExceeded(answer)) {
    membership_.NotReached(
        *member_,
        absl::StrCat("no answer within ", std::chrono::seconds(kAnswerLimit).count(), " s"));
  } else if (!absl::IsCancelled(answer)) {
    membership_.NotReached(*member_, std::string(answer.message()));
  }
  const MutexLock lock(mutex_);
  under_way_ = false;
  answered_ = answer.ok() || missed;
  if (answer.ok()) {
    misses_ = 0;
    pause_ = kFirstPause;
    next_ = Clock::now() + interval_;
  } else if (!missed) {
    next_ = Clock::now() + pause_;
    pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
  }
  changed_.notify_all();
}

}  // namespace

grpc::Status MembershipService::Register(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>* stream) {
  return metrics_.requests().Count("Register", [&] { return Serve(*context, *stream); });
}

grpc::Status MembershipService::Serve(grpc::ServerContext& context, RegisterStream& stream) {
  absl::Status status = CheckJoinToken(context, join_token_);
  if (status.ok()) status = CheckPeerName(context, peer_name_);
  if (!status.ok()) {
    metrics_.CountRefused(wire::ReasonOf(status));
    if (const auto refused = refusals_.Note(Clock::now())) {
      spdlog::warn("a worker at {} was refused: {} (refused since the last such line: {})",
                   AddressOfPeer(context.peer()), std::string(status.message()), *refused);
    }
    return wire::ToGrpc(status);
  }
  auto place = BlockingPlace::Enter(gate_, context);
  if (!place.ok()) return wire::ToGrpc(place.status());
  v1::Heartbeat heartbeat;
  const bool came = stream.Read(&heartbeat);
  if (!place->Open()) return wire::ToGrpc(place->why());
  if (!came) return wire::ToGrpc(absl::CancelledError("no heartbeat came"));
  const auto member = membership_.Register(heartbeat);
  if (!member.ok()) return wire::ToGrpc(member.status());
  // A silent worker is dropped by the membership, which ends the read below.
  const std::stop_callback end((*member)->departed.get_token(),
                               [&context] { context.TryCancel(); });
  Greeting greeting(membership_, *member, greet_interval_);
  bool first = true;
  do {
    if (!membership_.Beat(**member, heartbeat)) break;
    v1::HeartbeatReply reply = membership_.ReplyTo(**member);
    if (std::exchange(first, false)) reply.set_secret((*member)->secret);
    if (!stream.Write(reply)) break;
    greeting.Continue();
  } while (stream.Read(&heartbeat));
  membership_.Leave(**member);
  return grpc::Status::OK;
}

}  // namespace hilbert_ring::server
