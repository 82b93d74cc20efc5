// Tokens, bytes and jobs that each name has reserved.
//
//   auto share = quotas.Reserve(caller, {.tokens = spec.tokens, .bytes = bytes});
//   ...   // until the share is destroyed
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/access/caller.h"

namespace hilbert_ring::server {

// Thread-safe. Must outlive its shares.
class Quotas {
 public:
  struct Demand {
    int64_t tokens = 0;
    int64_t bytes = 0;
  };

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

  // OUT_OF_RANGE (OVER_QUOTA) if the job alone exceeds the caller's quota; RESOURCE_EXHAUSTED
  // (QUOTA) if it does so together with the caller's other jobs.
  absl::StatusOr<Share> Reserve(const Caller& caller, const Demand& job);

 private:
  struct Taken {
    int64_t jobs = 0, tokens = 0, bytes = 0;
  };
  Mutex mutex_;
  std::map<std::string, Taken> taken_ ABSL_GUARDED_BY(mutex_);  // names with jobs
};

}  // namespace hilbert_ring::server
