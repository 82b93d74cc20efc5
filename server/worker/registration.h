// Keeps this worker registered with its coordinator: a stream of heartbeats, taken up again
// whenever it ends: after a growing pause where the coordinator refuses it, within 250 ms of the
// coordinator's start where there is none.
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
  // up: called each time that the coordinator has reached this worker.
  // lost: called when the stream of a registration ends, or the coordinator answers no more.
  struct Hooks {
    std::function<v1::Heartbeat()> heartbeat;  // asked for each beat
    std::function<void()> up, lost;
    // Of the coordinator's data root; told with each reply. May be empty.
    std::function<void(const std::string& data_mark_file)> data_mark_file = {};
  };

  // join_token: empty where the coordinator asks for none. The secret, which must outlive this, is
  // told what the coordinator's calls are made with. calling: how the coordinator is called.
  Registration(const std::string& coordinator, const std::string& join_token,
               CoordinatorSecret& secret, Hooks hooks, Calling calling = {});

  // Ends the stream: the coordinator then knows that the worker has left.
  ~Registration() = default;

  // The next beat goes now.
  void BeatNow();

 private:
  void KeepUp(const std::stop_token& stop);
  // One stream, to its end; the reason. `answered` says whether the coordinator took us.
  grpc::Status Beat(const std::stop_token& stop, bool& answered);
  void Take(v1::HeartbeatReply& reply);
  void Sleep(const std::stop_token& stop, std::chrono::milliseconds time);

  const std::string coordinator_, join_token_;
  CoordinatorSecret& secret_;
  const Calling calling_;
  const Hooks hooks_;
  bool up_ = false;   // of this stream; the reading thread's
  std::string told_;  // reason in the log; likewise
  Mutex mutex_;
  std::condition_variable_any wake_;
  bool beat_now_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
