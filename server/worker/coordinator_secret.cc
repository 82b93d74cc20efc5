#include "server/worker/coordinator_secret.h"

#include <utility>

#include "server/process/tokens.h"

namespace hilbert_ring::server {

void CoordinatorSecret::Expect() {
  const MutexLock lock(mutex_);
  secret_.clear();
  expected_ = true;
}

void CoordinatorSecret::Set(std::string secret) {
  const MutexLock lock(mutex_);
  secret_ = std::move(secret);
  expected_ = false;
  changed_.notify_all();
}

absl::Status CoordinatorSecret::Check(const grpc::ServerContextBase& context,
                                      absl::string_view call) const {
  const MutexLock lock(mutex_);
  return CheckCallToken(context, secret_, call);
}

absl::Status CoordinatorSecret::Await(const grpc::ServerContextBase& context,
                                      absl::string_view call,
                                      std::chrono::milliseconds limit) const {
  MutexLock lock(mutex_);
  changed_.wait_for(lock, limit,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !expected_; });
  return CheckCallToken(context, secret_, call);
}

}  // namespace hilbert_ring::server
