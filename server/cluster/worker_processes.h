// Local workers as child processes, restarted when they die, stopped with the coordinator.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/process/deadline.h"
#include "server/process/settings.h"

namespace hilbert_ring::server {

struct WorkerPlacement {
  std::string device;      // for the worker's --device
  double gpu_share = 1.0;  // of that GPU's memory
};

// "auto" spreads the workers evenly over the GPUs; "cuda:N" and "auto:N" put all on that GPU.
std::vector<WorkerPlacement> PlaceWorkers(int workers, const std::string& device, int gpus);

// Counts the driver's device files, limited by CUDA_VISIBLE_DEVICES (null: not set), because this
// process does not load CUDA.
int VisibleGpus(const std::filesystem::path& device_files, const char* cuda_visible_devices);

struct WorkerProcessOptions {
  std::string program;
  std::vector<std::string> arguments;                // of all workers
  std::vector<std::vector<std::string>> of_workers;  // more of each worker; one entry for each
  // NCCL refuses two ranks of one host on one GPU. Workers that share a GPU therefore have a host
  // id each, and their traffic takes sockets over loopback.
  bool share_gpu = false;
  // Returns the current members' ports; null: no worker is replaced. A worker that was a member and
  // is absent for `silence_limit` is replaced because it hangs or is stopped.
  std::function<std::set<int>()> heard;
  std::chrono::milliseconds silence_limit{30'000};
};

// Returns whether the process listens at the port, from /proc; false if that cannot be read.
bool ListensAt(pid_t pid, int port);

std::vector<std::string> WorkerEnvironment(const WorkerProcessOptions& options, int worker);

class WorkerProcesses {
 public:
  // A thread of its own starts them, because children die with the thread that started them.
  explicit WorkerProcesses(WorkerProcessOptions options);

  ~WorkerProcesses();  // calls Stop

  // Sends SIGTERM, and SIGKILL after the limit. Returns when all have ended, at most 2 s after the
  // limit: a process in an uninterruptible wait does not end.
  void Stop(std::chrono::milliseconds limit);

  // Replaces the worker that listens at the port, if it is a child: SIGTERM, SIGKILL 5 s later.
  // Returns at once.
  void Replace(int port);

  int64_t restarts() const { return restarts_; }

 private:
  struct Slot {
    pid_t pid = -1;  // -1: to be started at `start`
    Clock::time_point started, start;
    std::chrono::milliseconds backoff;
    int port = 0;                           // as a member; 0: not yet a member
    Clock::time_point heard;                // last time among the members
    std::optional<Clock::time_point> kill;  // time of SIGKILL when it is being replaced
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
  Clock::time_point listened_;  // the supervisor's: last Listen
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::chrono::milliseconds stop_limit_ ABSL_GUARDED_BY(mutex_){5000};
  std::vector<int> replaced_ ABSL_GUARDED_BY(mutex_);  // ports
  std::jthread supervisor_;                            // last: it uses all of the above
};

}  // namespace hilbert_ring::server
