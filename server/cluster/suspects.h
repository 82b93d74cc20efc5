// Workers that sent a wrong row. A wrong row may be chance; a worker that sends wrong rows in two
// jobs is quarantined: it gets no more jobs, and a spawned worker is replaced.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/cluster/membership.h"

namespace hilbert_ring::server {

// Thread-safe.
class Suspects {
 public:
  // `quarantine` is called without locks held, once for each quarantined worker.
  explicit Suspects(std::function<void(const Member&)> quarantine)
      : quarantine_(std::move(quarantine)) {}

  // Numbers replace job ids here because a client may give all its jobs one id.
  int64_t NumberJob() { return ++jobs_; }

  // The worker sent a wrong row in this job. True if it is quarantined.
  bool Note(const std::shared_ptr<const Member>& worker, int64_t job) {
    {
      const MutexLock lock(mutex_);
      std::erase_if(records_, [](const auto& record) { return record.first.expired(); });
      Record& record = records_.try_emplace(worker, Record{.job = job}).first->second;
      if (record.quarantined) return true;
      if (record.job == job) return false;
      record.quarantined = true;
    }
    quarantine_(*worker);
    return true;
  }

 private:
  struct Record {
    int64_t job;  // the first
    bool quarantined = false;
  };
  const std::function<void(const Member&)> quarantine_;
  std::atomic<int64_t> jobs_ = 0;
  Mutex mutex_;
  std::map<std::weak_ptr<const Member>, Record, std::owner_less<>> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
