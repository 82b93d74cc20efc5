// The workers that are there. A worker registers with its first heartbeat, joins when it has been
// reached at its address (greeting.h), gets no jobs while it cannot be reached there any more, and
// leaves when its stream ends or its heartbeats stop.
//
// Which of two processes is the worker of an address is settled by which of them answers there:
// nothing that a process says of itself puts another out.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/cluster/model_versions.h"
#include "server/process/deadline.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/interval_thread.h"
#include "server/process/job_stop.h"
#include "server/process/refusal_log.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// One registration of one process; another one at the same address is another member.
struct Member {
  std::string address;  // host:port
  std::string secret;   // that calls to it are made with; the process and this one know it
  std::string device, kernel;
  std::string transport;  // of its rings
  std::string self_test;  // why it failed; empty: it passed, else the worker gets no jobs
  int http_port = 0;      // of its metrics; 0: none
  int64_t memory_limit_bytes = 0;
  int threads = 1;        // that compute a job; 0: a GPU does
  int express_lanes = 1;  // for short jobs beside another, numbered from 1
  int64_t model_memory_bytes = 0;
  bool bfloat16_products = false;  // else its numbers are taken in float32
  mutable ModelVersions models;
  // Calls may outlive the membership. The stub's go by the same channel.
  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<v1::WorkerService::StubInterface> stub;
  std::stop_source departed;  // requested when it leaves
  // Before that, of one that drained: it had ended its jobs, or their streams tell.
  mutable std::atomic<bool> left_in_order = false;
  // It has found the mark of the coordinator's data root in its own.
  mutable std::atomic<bool> sees_data_root = false;
  // It failed jobs and gets none before; since the clock's epoch.
  mutable std::atomic<Clock::duration> backs_off_until = Clock::duration(0);
  // It ended a job well last; likewise.
  mutable std::atomic<Clock::duration> worked_at = Clock::duration(0);
};

// Shared: jobs keep members that have left until their calls have ended.
using Members = std::vector<std::shared_ptr<const Member>>;

// Of the one that has most; 0 where one is a GPU, whose blocks take more; 1 where there is none.
int MostThreads(const Members& members);

// Thread-safe.
class Membership {
 public:
  struct Hooks {
    // Called without locks held.
    std::function<void(const Member&)> joined, left;       // of one that joined
    std::function<void(const std::string& address)> gone;  // nobody is registered there any more
    std::function<void(const Member&)> closed;  // it is there and takes no more jobs, or does again
    std::function<void(const Member&)> failed;  // a job, or could not be reached
    std::function<void(const Member&, const v1::Heartbeat&)> beat;  // of one that joined
    // What calls to a worker at this address are made by; null: a connection over the network.
    std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> dial;
  };

  // A worker that is silent for `timeout` has left. calling: how workers are called.
  Membership(std::chrono::milliseconds timeout, Hooks hooks, const TimeSource& time = SystemTime(),
             Calling calling = {});
  ~Membership();

  // Of the data root, which workers are to find in theirs. Before there are workers.
  void SetDataMark(std::string file, std::string mark);

  // Registers a worker, which joins when it is reached. FAILED_PRECONDITION when versions differ,
  // INVALID_ARGUMENT for a heartbeat without address, RESOURCE_EXHAUSTED when too many are there.
  absl::StatusOr<std::shared_ptr<const Member>> Register(const v1::Heartbeat& heartbeat);

  // It answered at its address, or did not and why. Whoever was there before has left. One that
  // works is let be. Workers that are not reached have a line of the log a minute, all together.
  void Reached(const Member& member);
  void NotReached(const Member& member, const std::string& why);

  // It takes jobs, and works on none that SetJob told of.
  bool Idle(const Member& member) const;

  // False when the member has left.
  [[nodiscard]] bool Beat(const Member& member, const v1::Heartbeat& heartbeat);

  // What a worker is told: when to beat again, whether it is up.
  v1::HeartbeatReply ReplyTo(const Member& member) const;

  void Leave(const Member& member);

  // It sent what is wrong: it takes no more jobs until it is started anew. False when it took none
  // any more: it had left or was leaving, and another process may have its address by now.
  bool Quarantine(const Member& member);

  // It failed a job or a ring that others need not have failed: it rests for a second, twice as
  // long each time in a row, for a minute at most.
  void Failed(const Member& member, const std::string& why);

  // It failed a job that others may fail too: that is counted and logged, and it does not rest.
  void NoteFailure(const Member& member, const std::string& why);

  // They ended a job well: what they failed before is forgotten.
  void Worked(const Members& members);

  // Those that take jobs, in the order in which they registered. Of those that rest see
  // backs_off_until.
  Members Live() const;

  // Addresses of those that joined and are registered, whatever they do.
  std::vector<std::string> Joined() const;

  // How often members came, went, or stopped to take jobs: to be read before they are looked at.
  int64_t changes() const;

  // Until there is such news beyond `seen`, or the deadline; the stop's reason when it comes first.
  absl::Status AwaitChange(int64_t seen, Deadline deadline, const JobStop& stop);

  // Says which job the members work on; an empty id: none.
  void SetJob(const Members& members, const std::string& job_id);

  std::vector<v1::ClusterWorker> Describe() const;

 private:
  struct Seat {
    std::shared_ptr<Member> member;
    int64_t used_bytes = 0, resident_bytes = 0;
    Clock::time_point beat;
    v1::ClusterWorker::State state = v1::ClusterWorker::STATE_JOINING;
    Clock::time_point registered;
    std::string job_id;
    std::string reason;   // why it is not up, or what it failed last
    int failures = 0;     // in a row
    bool joined = false;  // it was up
  };

  std::list<Seat>::const_iterator Find(const Member& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::list<Seat>::iterator Find(const Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool Close(const Member& member, v1::ClusterWorker::State state);
  void DropSilent();
  void TellChange();
  // Takes seats out under the lock, then tells everyone.
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
  Clock::time_point awake_ = Clock::now();  // when DropSilent was called last; its thread's
  IntervalThread dropper_;                  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
