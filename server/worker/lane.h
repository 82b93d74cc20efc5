// A device, which takes one job at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "engine/device/device.h"

namespace hilbert_ring::server {

class Lane {
 public:
  explicit Lane(Device& device) : device_(device) {}

  Device& device() const { return device_; }

  // A job's hold of the device; the next one's begins when it is destroyed. Empty: not held.
  struct End {
    void operator()(Lane* lane) const { lane->EndTurn(); }
  };
  using Turn = std::unique_ptr<Lane, End>;

  // Waits so long for the turn; empty when it has not come. Thread-safe.
  Turn AwaitTurn(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, limit, [this] { return !taken_; })) return nullptr;
    taken_ = true;
    return Turn(this);
  }

 private:
  void EndTurn() {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    ended_.notify_one();
  }

  Device& device_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool taken_ = false;  // guarded by mutex_
};

}  // namespace hilbert_ring::server
