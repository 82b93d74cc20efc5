// What the jobs of each name take together.
//
//   // Until the share goes:
//   auto share = quotas.Reserve(caller, {.tokens = spec.tokens, .bytes = bytes});
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/access/caller.h"

namespace hilbert_ring::server {

// Thread-safe. Must outlive what is reserved of it.
class Quotas {
 public:
  struct Demand {
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
    Share(Quotas* quotas, std::string name, Demand job)
        : quotas_(quotas), name_(std::move(name)), job_(job) {}
    Quotas* quotas_;  // null when moved from
    std::string name_;
    Demand job_;
  };

  // OUT_OF_RANGE (OVER_QUOTA) when the job alone is beyond the caller's quota; RESOURCE_EXHAUSTED
  // (QUOTA) when it is with those that the caller has.
  absl::StatusOr<Share> Reserve(const Caller& caller, const Demand& job);

 private:
  struct Taken {
    int64_t jobs = 0, tokens = 0, bytes = 0;
  };
  Mutex mutex_;
  std::map<std::string, Taken> taken_ ABSL_GUARDED_BY(mutex_);  // of names that have jobs
};

}  // namespace hilbert_ring::server
