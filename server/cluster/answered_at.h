// Where a worker's last answer came from: its address may be a name.
#pragma once

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe.
class AnsweredAt {
 public:
  void Set(std::string address) {
    const MutexLock lock(mutex_);
    address_ = std::move(address);
  }

  // "10.0.0.7:8101"; empty: none has come, or over no network.
  std::string Get() const {
    const MutexLock lock(mutex_);
    return address_;
  }

 private:
  mutable Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
