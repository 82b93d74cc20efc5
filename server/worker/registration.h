// Keeps this worker registered with its coordinator: a stream of heartbeats, taken up again, after
// a growing pause, whenever it ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "grpcpp/channel.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"

namespace hilbert_ring::server {

class Registration {
 public:
  // heartbeat: asked for each beat. registered: called once, when the coordinator first answers.
  // lost: called when the stream of a registration ends, or the coordinator answers no more.
  Registration(const std::string& coordinator, std::function<v1::Heartbeat()> heartbeat,
               std::function<void()> registered, std::function<void()> lost);

  // Ends the stream: the coordinator then knows that the worker has left.
  ~Registration() = default;

  // The next beat goes now.
  void BeatNow();

 private:
  void KeepUp(const std::stop_token& stop);
  // One stream, to its end; the reason. `answered` says whether the coordinator took us.
  grpc::Status Beat(const std::stop_token& stop, bool& answered);
  void Sleep(const std::stop_token& stop, std::chrono::milliseconds time);

  const std::string coordinator_;
  const std::function<v1::Heartbeat()> heartbeat_;
  std::function<void()> registered_;  // null once called
  const std::function<void()> lost_;
  std::unique_ptr<v1::MembershipService::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  bool beat_now_ = false;  // guarded by mutex_
  std::jthread thread_;    // last: it uses all of the above
};

}  // namespace hilbert_ring::server
