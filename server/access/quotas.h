// What the jobs of each name take together.
//
//   // Until the share goes:
//   auto share = quotas.Reserve(caller, {.tokens = spec.tokens, .bytes = bytes});
//
//   // Where that is refused with QUOTA, and there is time:
//   quotas.AwaitChange(caller, seen, stop, deadline);   // seen: changes() before Reserve
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/access/caller.h"
#include "server/process/job_stop.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// Thread-safe. Must outlive what is reserved of it.
class Quotas {
 public:
  // time: outlives it.
  explicit Quotas(const TimeSource& time = SystemTime()) : time_(time) {}

  struct Job {
    int64_t tokens = 0;
    int64_t bytes = 0;
  };

  // A job's part; given back with it.
  class Share {
   public:
    Share(Share&& other) noexcept
        : quotas_(std::exchange(other.quotas_, nullptr)),
          name_(std::move(other.name_)),
          job_(other.job_) {}
    Share& operator=(Share&&) = delete;
    ~Share();

   private:
    friend class Quotas;
    Share(Quotas* quotas, std::string name, Job job)
        : quotas_(quotas), name_(std::move(name)), job_(job) {}
    Quotas* quotas_;  // null when moved from
    std::string name_;
    Job job_;
  };

  // OUT_OF_RANGE (OVER_QUOTA) when the job alone is beyond the caller's quota; RESOURCE_EXHAUSTED
  // (QUOTA) when it is with those that the caller has.
  absl::StatusOr<Share> Reserve(const Caller& caller, const Job& job);

  // Of shares, taken and given back; never less than before.
  int64_t changes() const;

  // Until the caller has fewer jobs than when changes() said `seen`, or none, or the deadline. The
  // stop's reason.
  absl::Status AwaitChange(const Caller& caller, int64_t seen, const JobStop& stop,
                           Deadline deadline);

 private:
  struct Taken {
    int64_t jobs = 0, tokens = 0, bytes = 0;
    int64_t changed = 0;  // changes_ when a job of the name ended, or when its first one began
  };
  const TimeSource& time_;
  mutable Mutex mutex_;
  std::condition_variable_any given_back_;
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Taken> taken_ ABSL_GUARDED_BY(mutex_);  // of names that have jobs
};

}  // namespace hilbert_ring::server
