// What the coordinator's calls to this worker are made with, as the coordinator has told: calls
// made with anything else are refused.
#pragma once

#include <chrono>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/mutex.h"
#include "grpcpp/server_context.h"

namespace hilbert_ring::server {

// Thread-safe.
class CoordinatorSecret {
 public:
  // A registration begins: the secret of the one before is good for nothing from here on.
  void Expect();
  void Set(std::string secret);

  // UNAUTHENTICATED (JOIN_TOKEN); so are all before the first Set.
  absl::Status Check(const grpc::ServerContextBase& context, absl::string_view call) const;

  // As Check, of a call that may overtake the secret: waits so long for one that is expected.
  absl::Status Await(const grpc::ServerContextBase& context, absl::string_view call,
                     std::chrono::milliseconds limit) const;

 private:
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::string secret_ ABSL_GUARDED_BY(mutex_);  // empty: not registered
  bool expected_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hilbert_ring::server
