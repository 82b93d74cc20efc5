// The coordinator's memory for streams. A caller (Caller::turns) gets at most half of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/mutex.h"
#include "server/access/caller.h"

namespace hilbert_ring::server {

// Thread-safe. Outlives its shares.
class StreamMemory {
 public:
  using Share = std::shared_ptr<const void>;  // its end returns the bytes

  explicit StreamMemory(int64_t limit_bytes) : limit_(limit_bytes) {}

  // RESOURCE_EXHAUSTED (WAITING_MEMORY), whose message begins with `what`.
  absl::StatusOr<Share> Reserve(const Caller& caller, int64_t bytes, absl::string_view what);

  int64_t used() const;
  int64_t limit() const { return limit_; }

 private:
  void Return(const std::string& caller, int64_t bytes);

  const int64_t limit_;
  mutable Mutex mutex_;
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t> used_by_ ABSL_GUARDED_BY(mutex_);  // positive counts
};

}  // namespace hilbert_ring::server
