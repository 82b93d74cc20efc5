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
  // up: after each registration. lost: when a registration ends, or the coordinator falls silent.
  struct Hooks {
    std::function<v1::Heartbeat()> heartbeat;  // for each beat
    std::function<void()> up, lost;
    // With each reply, of the coordinator's data root. May be empty.
    std::function<void(const std::string& data_mark_file)> data_mark_file = {};
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
