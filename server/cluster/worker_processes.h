// Local workers as child processes: started, started again when they die, stopped with the
// coordinator.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

struct WorkerProcessOptions {
  std::string program;
  std::vector<std::string> arguments;                // of all workers
  std::vector<std::vector<std::string>> of_workers;  // and of each its own: as many as there are
  // Some workers compute on one GPU. NCCL refuses that within a host, so each worker is told
  // that it is a host of its own; their traffic then takes sockets, over loopback.
  bool share_gpu = false;
  // Ports of the workers that are members, as they are now; null: nobody knows. One of these that
  // was a member, and is none for `silence_limit`, is replaced: it is stopped, or hangs, and would
  // not end by itself.
  std::function<std::set<int>()> heard;
  std::chrono::milliseconds silence_limit{30'000};
};

// What the worker of that number needs in its environment: "NCCL_HOSTID=rank1".
std::vector<std::string> WorkerEnvironment(const WorkerProcessOptions& options, int worker);

class WorkerProcesses {
 public:
  // Starts them from a thread of its own, which the children's lives are bound to.
  explicit WorkerProcesses(WorkerProcessOptions options);

  // Stops them as Stop does.
  ~WorkerProcesses();

  // SIGTERM to all, SIGKILL to those that are still there after the limit; returns when all are
  // gone, or 2 s later: the system does not end a process while it cannot interrupt its wait.
  void Stop(std::chrono::milliseconds limit);

  // Ends the worker that listens at the port, if it is one of these, so that another is started in
  // its place: SIGTERM, and SIGKILL if it is still there 5 s later. Returns at once.
  void Replace(int port);

  // How often one of them ended and another was to be started in its place.
  int64_t restarts() const { return restarts_; }

 private:
  struct Slot {
    pid_t pid = -1;  // -1: to be started at `start`
    Clock::time_point started, start;
    std::chrono::milliseconds backoff;
    int port = 0;             // at which it was heard; 0: it was not yet
    Clock::time_point heard;  // last
    std::optional<Clock::time_point>
        kill;  // of one that is to be replaced: when it must have ended
  };

  void Supervise(const std::stop_token& stop);
  void StartDue(int worker);
  void CheckAlive(Slot& slot);
  void Listen();
  void EndReplaced();
  void End(Slot& slot);
  void StopAll();

  const WorkerProcessOptions options_;
  std::atomic<int64_t> restarts_ = 0;
  std::vector<Slot> slots_;     // the supervisor's
  Clock::time_point listened_;  // likewise: last
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::chrono::milliseconds stop_limit_ ABSL_GUARDED_BY(mutex_){5000};
  std::vector<int> replaced_ ABSL_GUARDED_BY(mutex_);  // ports that are to be looked for
  std::jthread supervisor_;                            // last: it uses all of the above
};

}  // namespace hilbert_ring::server
