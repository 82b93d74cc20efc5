// The workers that are there. A worker joins with its first heartbeat, and leaves when its stream
// ends or its heartbeats stop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// One process of one worker; another process at the same address is another member.
struct Member {
  std::string address;  // host:port
  uint64_t incarnation = 0;
  std::string device, kernel;
  std::string transport;  // of its rings
  int64_t memory_limit_bytes = 0;
  std::shared_ptr<v1::WorkerService::StubInterface> stub;  // calls may outlive the membership
  std::stop_source departed;                               // requested when it leaves
  // Before that, of one that drained: it had ended its jobs, or their streams tell.
  mutable std::atomic<bool> left_in_order = false;
};

// Shared: jobs keep members that have left until their calls have ended.
using Members = std::vector<std::shared_ptr<const Member>>;

// Thread-safe.
class Membership {
 public:
  struct Hooks {
    // Called without locks held.
    std::function<void(const Member&)> joined, left;
    std::function<void(const Member&)> closed;  // it is there and takes no more jobs
    std::function<void(const Member&, const v1::Heartbeat&)> beat;
  };

  // A worker that is silent for `timeout` has left.
  Membership(std::chrono::milliseconds timeout, Hooks hooks);
  ~Membership();

  std::chrono::milliseconds BeatInterval() const { return timeout_ / 4; }

  // FAILED_PRECONDITION when versions differ, INVALID_ARGUMENT for a heartbeat without address,
  // ALREADY_EXISTS when a newer incarnation holds it. An older incarnation, and the same one on an
  // older stream, gives way.
  absl::StatusOr<std::shared_ptr<const Member>> Join(const v1::Heartbeat& heartbeat);

  // False when the member has left.
  bool Beat(const Member& member, const v1::Heartbeat& heartbeat);

  void Leave(const Member& member);

  // It sent what is wrong: it takes no more jobs until it is started anew.
  void Distrust(const Member& member);

  // Those that take jobs, in the order in which they joined.
  Members Live() const;

  // Says which job the members work on; an empty id: none.
  void SetJob(const Members& members, const std::string& job_id);

  std::vector<v1::ClusterWorker> Describe() const;

 private:
  struct Seat {
    std::shared_ptr<Member> member;
    int64_t used_bytes = 0, resident_bytes = 0;
    Clock::time_point beat;
    v1::ClusterWorker::State state = v1::ClusterWorker::STATE_UP;
    std::string job_id;
  };

  bool Close(const Member& member, v1::ClusterWorker::State state);
  void DropSilent(const std::stop_token& stop);
  // Takes seats out under the lock, then tells everyone.
  template <typename Chosen>
  void Drop(const Chosen& chosen, const char* why);

  const std::chrono::milliseconds timeout_;
  const Hooks hooks_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::list<Seat> seats_;  // guarded by mutex_
  std::jthread dropper_;   // last: it uses all of the above
};

}  // namespace hilbert_ring::server
