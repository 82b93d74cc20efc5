#include "server/worker/registration.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "server/process/deadline.h"
#include "server/process/tokens.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstInterval{200};
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{2000};  // if refused
// The coordinator is away: jobs may wait for this worker as soon as it is back.
constexpr milliseconds kLongestUnreachedPause{250};
// Silence after which this worker gives the coordinator up: twice the coordinator's own limit.
constexpr int kSilentIntervals = 8;
constexpr milliseconds kLeastAnswerLimit{2000};

// A status of the transport has no details.
bool Unreached(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty();
}

std::string Explained(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return "the port takes no workers: --coordinator names the coordinator's membership port "
           "(8003 if it is not set otherwise)";
  }
  return status.error_message();
}

}  // namespace

Registration::Registration(const std::string& coordinator, const std::string& join_token,
                           CoordinatorSecret& secret, Hooks hooks, Calling calling)
    : coordinator_(coordinator),
      join_token_(join_token),
      secret_(secret),
      calling_(std::move(calling)),
      hooks_(std::move(hooks)),
      thread_([this](const std::stop_token& stop) { KeepUp(stop); }) {}

void Registration::BeatNow() {
  const MutexLock lock(mutex_);
  beat_now_ = true;
  wake_.notify_all();
}

void Registration::KeepUp(const std::stop_token& stop) {
  milliseconds pause = kFirstPause;
  std::string last_reason;
  while (!stop.stop_requested()) {
    bool answered = false;
    const grpc::Status status = Beat(stop, answered);
    if (stop.stop_requested()) return;
    if (answered) hooks_.registered(false);
    const std::string reason = Explained(status);
    if (answered || reason != last_reason) {
      spdlog::warn("not registered with {}: {}", coordinator_, reason);
      last_reason = reason;
    }
    if (answered) pause = kFirstPause;
    MutexLock lock(mutex_);
    wake_.wait_for(lock, stop, pause, [] { return false; });
    pause = std::min(2 * pause, Unreached(status) ? kLongestUnreachedPause : kLongestPause);
  }
}

grpc::Status Registration::Beat(const std::stop_token& stop, bool& answered) {
  grpc::ClientContext context;
  AddJoinToken(context, join_token_);
  secret_.Set("");
  up_ = false;
  told_.clear();
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  // A new channel, because a refused channel backs off longer and longer.
  const auto stub = v1::MembershipService::NewStub(Dial(coordinator_, kLeastAnswerLimit, calling_));
  const auto stream = stub->Register(&context);
  std::atomic<Deadline> heard = Clock::now();
  std::atomic<int64_t> interval_ms = kFirstInterval.count();
  std::atomic<bool> ended = false;
  std::thread reader([&] {
    v1::HeartbeatReply reply;
    while (stream->Read(&reply)) {
      heard = Clock::now();
      interval_ms = std::max<int64_t>(1, reply.interval_ms());
      answered = true;
      Take(reply);
    }
    ended = true;
    const MutexLock lock(mutex_);
    wake_.notify_all();
  });
  bool written = true;
  while (!stop.stop_requested() && !ended && (written = stream->Write(hooks_.heartbeat()))) {
    MutexLock lock(mutex_);
    wake_.wait_for(lock, stop, milliseconds(interval_ms),
                   [&]()
                       ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended.load() || beat_now_; });
    beat_now_ = false;
    lock.unlock();
    if (Clock::now() - heard.load() >
        std::max(kLeastAnswerLimit, kSilentIntervals * milliseconds(interval_ms))) {
      break;
    }
  }
  // A call that the coordinator ended keeps its status, which has the reason.
  if (written && !ended) context.TryCancel();
  reader.join();
  return stream->Finish();
}

void Registration::Take(v1::HeartbeatReply& reply) {
  if (!reply.secret().empty()) secret_.Set(std::move(*reply.mutable_secret()));
  hooks_.reply(reply);
  if (reply.reason() != told_) {
    told_ = reply.reason();
    if (!told_.empty()) {
      spdlog::warn("the coordinator at {} gives this worker no jobs: it {}", coordinator_, told_);
    }
  }
  if (!reply.up() || std::exchange(up_, true)) return;
  spdlog::info("registered with {}", coordinator_);
  hooks_.registered(true);
}

}  // namespace hilbert_ring::server
