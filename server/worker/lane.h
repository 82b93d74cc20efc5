// A device that computes one job at a time.
#pragma once

#include <chrono>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/device/device.h"

namespace hilbert_ring::server {

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

}  // namespace hilbert_ring::server
