// The secret that authenticates the coordinator's calls to this worker.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/mutex.h"
#include "grpcpp/server_context.h"
#include "server/process/tokens.h"

namespace hilbert_ring::server {

class CoordinatorSecret {  // thread-safe
 public:
  // A registration begins: the earlier secret is void.
  void Expect() {
    const MutexLock lock(mutex_);
    secret_.clear();
  }

  void Set(std::string secret) {
    const MutexLock lock(mutex_);
    secret_ = std::move(secret);
    changed_.notify_all();
  }

  // UNAUTHENTICATED (JOIN_TOKEN), also before the first Set. limit: of a wait for the secret, which
  // a call may overtake.
  absl::Status Check(const grpc::ServerContextBase& context, absl::string_view call,
                     std::chrono::milliseconds limit = {}) const {
    MutexLock lock(mutex_);
    changed_.wait_for(lock, limit,
                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !secret_.empty(); });
    return CheckCallToken(context, secret_, call);
  }

 private:
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::string secret_ ABSL_GUARDED_BY(mutex_);  // empty: not registered
};

}  // namespace hilbert_ring::server
