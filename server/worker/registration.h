// Registers this worker with its coordinator by a stream of heartbeats, and again when it ends:
// with growing pauses if the coordinator refuses, within 250 ms of its start if it is away. The
// destructor ends the stream, by which the coordinator knows that the worker has left.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/process/grpc_endpoint.h"
#include "server/worker/coordinator_secret.h"

namespace hilbert_ring::server {

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
