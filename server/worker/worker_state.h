// State that all jobs of a worker share.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/device/device.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/metrics/worker_metrics.h"
#include "server/process/kept_memory.h"
#include "server/process/kept_threads.h"
#include "server/shard/job_memory.h"
#include "server/worker/active_calls.h"
#include "server/worker/registration.h"
#include "server/worker/ring_table.h"
#include "server/worker/run_work.h"
#include "server/worker/shared_rows.h"

namespace hilbert_ring::server {

// A device that computes one job at a time.
class Lane {
 public:
  explicit Lane(Device& device) : device_(device) {}

  Device& device() const { return device_; }

  struct End {  // a job's hold of the device, until it is destroyed
    void operator()(Lane* lane) const { lane->EndTurn(); }
  };
  using Turn = std::unique_ptr<Lane, End>;

  // Empty if the turn has not come by then. Thread-safe.
  Turn AwaitTurn(std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    if (!ended_.wait_for(lock, limit,
                         [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !taken_; }))
      return nullptr;
    taken_ = true;
    return Turn(this);
  }

 private:
  void EndTurn() {
    const MutexLock lock(mutex_);
    taken_ = false;
    ended_.notify_one();
  }

  Device& device_;
  Mutex mutex_;
  ConditionVariable ended_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

// The worker's own lane, with all threads, then express lanes of one thread each.
using Lanes = std::deque<Lane>;

struct WorkerState {
  JobMemory memory;
  RingTable rings;
  const bool share_memory = true;
  // A run ends after this silence of a coordinator that owes it rows, or RunOpen.
  const std::chrono::milliseconds feed_timeout, open_timeout = std::chrono::seconds(5);
  // Makes the work of a run with `encode`, on a device of `threads`. Not called without models.
  std::function<absl::StatusOr<std::unique_ptr<RunWork>>(const v1::RunOpen& open, int threads)>
      make_encode = nullptr;
  std::string data_root = {};  // folder of tensors by path; empty: no such tensors
  Lanes lanes = {};
  ActiveCalls calls = {};
  CoordinatorSecret secret = {};  // of the coordinator, which alone may call
  WorkerMetrics metrics = {};
  KeptThreads threads = {};
  PinnedShards pinned{};      // of ended jobs on a GPU
  KeptMemory<Buffer> kept{};  // shards of ended jobs in this process's memory
};

}  // namespace hilbert_ring::server
