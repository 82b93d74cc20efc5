// Registers this worker with its coordinator by a stream of heartbeats, and again when it ends:
// with growing pauses if the coordinator refuses, within 250 ms of its start if it is away. The
// destructor ends the stream, by which the coordinator knows that the worker has left.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/mutex.h"
#include "grpcpp/server_context.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/tokens.h"

namespace hilbert_ring::server {

// The secret that authenticates the coordinator's calls to this worker. Thread-safe.
class CoordinatorSecret {
 public:
  void Set(std::string secret) {  // empty: a registration begins, the earlier one is void
    const MutexLock lock(mutex_);
    secret_ = std::move(secret);
    changed_.notify_all();
  }

  // UNAUTHENTICATED (JOIN_TOKEN), also before the first Set.
  absl::Status Check(const grpc::ServerContextBase& context, absl::string_view call) const {
    const MutexLock lock(mutex_);
    return CheckCallToken(context, secret_, call);
  }

  void Await(std::chrono::milliseconds limit) const {
    MutexLock lock(mutex_);
    changed_.wait_for(lock, limit,
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !secret_.empty(); });
  }

 private:
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::string secret_ ABSL_GUARDED_BY(mutex_);  // empty: not registered
};

class Registration {
 public:
  struct Hooks {
    std::function<v1::Heartbeat()> heartbeat;  // for each beat
    // True after each registration, false after its end or the coordinator's silence.
    std::function<void(bool registered)> registered;
    std::function<void(const v1::HeartbeatReply& reply)> reply;
  };

  // join_token: or empty. The secret, which outlives this, gets the secret of the coordinator's
  // calls. calling: how to call the coordinator.
  Registration(const std::string& coordinator, const std::string& join_token,
               CoordinatorSecret& secret, Hooks hooks, Calling calling = {});

  void BeatNow();

 private:
  void KeepUp(const std::stop_token& stop);
  // Runs one stream to its end. answered: the coordinator has replied.
  grpc::Status Beat(const std::stop_token& stop, bool& answered);
  void Take(v1::HeartbeatReply& reply);

  const std::string coordinator_, join_token_;
  CoordinatorSecret& secret_;
  const Calling calling_;
  const Hooks hooks_;
  bool up_ = false;   // in this stream; the reader's
  std::string told_;  // reason in the log; the reader's
  Mutex mutex_;
  std::condition_variable_any wake_;
  bool beat_now_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: uses the members above
};

}  // namespace hilbert_ring::server
