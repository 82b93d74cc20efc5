// The registered workers.
//
//   auto member = membership.Register(heartbeat);     // its first heartbeat
//   membership.Reached(**member);                     // it answers at its address: it joins
//   while (membership.Beat(**member, heartbeat)) {}   // its stream
//   membership.Leave(**member);                       // its stream has ended
//
// A worker gets no jobs while it does not answer at its address (membership_service.cc). It also
// leaves when its heartbeats stop. Two processes may register one address: the process that answers
// there is the worker. A heartbeat alone never removes another process.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/process/deadline.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/interval_thread.h"
#include "server/process/job_stop.h"
#include "server/process/refusal_log.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// The models that a worker has, from its heartbeats. Thread-safe.
class ModelVersions {
 public:
  void Set(const google::protobuf::RepeatedPtrField<v1::ModelVersion>& models) {
    constexpr int kMost = 256;
    const int count = std::min(models.size(), kMost);
    std::vector<v1::ModelVersion> versions(models.begin(), models.begin() + count);
    const MutexLock lock(mutex_);
    versions_ = std::move(versions);
  }

  bool Has(std::string_view name, std::string_view digest) const {
    const MutexLock lock(mutex_);
    return std::ranges::any_of(versions_, [&](const v1::ModelVersion& version) {
      return version.name() == name && version.digest() == digest;
    });
  }

 private:
  mutable Mutex mutex_;
  std::vector<v1::ModelVersion> versions_ ABSL_GUARDED_BY(mutex_);
};

struct Member {
  std::string address;  // host:port
  std::string secret;   // of calls to it
  std::string device, kernel;
  std::string transport;  // of its rings
  std::string self_test;  // its failure: the worker gets no jobs; empty: passed
  int http_port = 0;      // of its metrics; 0: no port
  int64_t memory_limit_bytes = 0;
  int threads = 1;        // of a job; 0: a GPU
  int express_lanes = 1;  // for short jobs beside another, numbered from 1
  int64_t model_memory_bytes = 0;
  bool bfloat16_products = false;  // else its numbers are taken in float32
  mutable ModelVersions models;
  std::shared_ptr<grpc::Channel> channel;  // of `stub`; calls may outlive the membership
  std::shared_ptr<v1::WorkerService::StubInterface> stub;
  std::stop_source departed;                         // requested when it leaves
  mutable std::atomic<bool> left_in_order = false;   // drained; set before `departed`
  mutable std::atomic<bool> sees_data_root = false;  // its data root has the service's mark
  // Times since the clock's epoch. backs_off_until: the worker has failed jobs, and gets none
  // before. worked_at: the end of its last job without errors.
  mutable std::atomic<Clock::duration> backs_off_until = Clock::duration(0);
  mutable std::atomic<Clock::duration> worked_at = Clock::duration(0);
};

// Shared: jobs keep members that have left until their calls have ended.
using Members = std::vector<std::shared_ptr<const Member>>;

// The largest `threads`; 0 if a member is a GPU, whose blocks take more; 1 without members.
int MostThreads(const Members& members);

// Thread-safe.
class Membership {
 public:
  struct Hooks {
    // Called without locks held.
    std::function<void(const Member&)> joined, left;       // `left` only after `joined`
    std::function<void(const std::string& address)> gone;  // the address has no member left
    std::function<void(const Member&)> closed;             // stops or resumes taking jobs
    std::function<void(const Member&)> failed;             // it failed a job, or did not answer
    std::function<void(const Member&, const v1::Heartbeat&)> beat;  // after `joined`
    // Channel to a worker; null: a connection over the network.
    std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> dial;
  };

  // A worker leaves after `timeout` without a heartbeat.
  Membership(std::chrono::milliseconds timeout, Hooks hooks, const TimeSource& time = SystemTime(),
             Calling calling = {});
  ~Membership();

  // Sets the file and text by which workers recognize the data root. Before the first Register.
  void SetDataMark(std::string file, std::string mark);

  // FAILED_PRECONDITION if versions differ, INVALID_ARGUMENT for a heartbeat without address,
  // RESOURCE_EXHAUSTED beyond the limit of workers. The worker joins with Reached.
  absl::StatusOr<std::shared_ptr<const Member>> Register(const v1::Heartbeat& heartbeat);

  // The worker answered a call to its address, or did not. An answer lets a joining worker take
  // jobs, and removes other members of its address. A miss has no effect on a worker with a job.
  // The log has at most one line a minute for all misses.
  void Reached(const Member& member);
  void NotReached(const Member& member, const std::string& why);

  // Returns whether the worker takes jobs but computes no job.
  bool Idle(const Member& member) const;

  [[nodiscard]] bool Beat(const Member& member, const v1::Heartbeat& heartbeat);  // false: left

  v1::HeartbeatReply ReplyTo(const Member& member) const;

  void Leave(const Member& member);

  // Gives the worker no more jobs, because it sent wrong rows. Returns false if it already took no
  // jobs. Another process may then have its address.
  bool Quarantine(const Member& member);

  // The worker failed a job or a ring, and other workers may succeed. It backs off for 1 s, doubled
  // for each failure in a row, 60 s at most.
  void Failed(const Member& member, const std::string& why);

  // The worker failed a job that other workers may fail too. The failure is counted and logged,
  // without a backoff.
  void NoteFailure(const Member& member, const std::string& why);

  void Worked(const Members& members);  // clears their failures

  // Returns the members that take jobs, by registration. Some may back off.
  Members Live() const;

  std::vector<std::string> Joined() const;  // addresses, in any state

  // Returns the number of arrivals, departures and stops of members. A caller reads it before the
  // members, so that AwaitChange misses no change.
  int64_t changes() const;

  // Waits until changes() differs from `seen`, or until the deadline. Returns the reason of a stop.
  absl::Status AwaitChange(int64_t seen, Deadline deadline, const JobStop& stop);

  void SetJob(const Members& members, const std::string& job_id);  // empty: idle

  std::vector<v1::ClusterWorker> Describe() const;

 private:
  struct Seat {
    std::shared_ptr<Member> member;
    int64_t used_bytes = 0, resident_bytes = 0;
    Clock::time_point beat;
    v1::ClusterWorker::State state = v1::ClusterWorker::STATE_JOINING;
    Clock::time_point registered;
    std::string job_id;
    std::string reason;  // of its state, or its last failure
    int failures = 0;    // in a row
    bool joined = false;
  };

  std::list<Seat>::iterator Find(const Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool Close(const Member& member, v1::ClusterWorker::State state);
  void DropSilent();
  void NotifyChange();
  // Removes the chosen seats, then calls the hooks without the lock.
  template <typename Chosen>
  void Drop(const Chosen& chosen, std::string_view why);

  const std::chrono::milliseconds timeout_;
  const TimeSource& time_;
  const Hooks hooks_;
  const Calling calling_;
  std::string data_mark_file_, data_mark_;  // empty: there is no data root
  RefusalLog unreached_;
  mutable Mutex mutex_;
  std::list<Seat> seats_ ABSL_GUARDED_BY(mutex_);
  std::condition_variable_any changed_;
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  Clock::time_point awake_ = Clock::now();  // the last DropSilent; its thread's own
  IntervalThread dropper_;                  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
