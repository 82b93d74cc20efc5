// The coordinator's memory for streams. A caller (Caller::turns) gets at most half of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/mutex.h"
#include "server/access/caller.h"

namespace hilbert_ring::server {

// Thread-safe. Outlives its shares.
class StreamMemory {
 public:
  class Share {
   public:
    Share(Share&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)),
          caller_(std::move(other.caller_)),
          bytes_(other.bytes_) {}
    Share& operator=(Share&&) = delete;
    ~Share();

   private:
    friend class StreamMemory;
    Share(StreamMemory* memory, std::string caller, int64_t bytes)
        : memory_(memory), caller_(std::move(caller)), bytes_(bytes) {}
    StreamMemory* memory_;  // null when moved from
    std::string caller_;
    int64_t bytes_;
  };

  explicit StreamMemory(int64_t limit_bytes) : limit_(limit_bytes) {}

  // RESOURCE_EXHAUSTED (WAITING_MEMORY), whose message begins with `what`.
  absl::StatusOr<Share> Reserve(const Caller& caller, int64_t bytes, absl::string_view what);

  int64_t used() const;
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> used_by_ ABSL_GUARDED_BY(mutex_);  // positive counts
};

}  // namespace hilbert_ring::server
