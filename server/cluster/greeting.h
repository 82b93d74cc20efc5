// Calls a worker at its address before it gets jobs: a worker that only sends heartbeats (no
// --host, an address translation, a firewall) fails every job. An idle worker gets calls again
// because translations and firewalls change.
//
//   Greeting greeting(membership, member, std::chrono::seconds(10));
//   greeting.Continue();                    // at each heartbeat
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "grpcpp/client_context.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/cluster/membership.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

class Greeting {
 public:
  // `membership` must outlive it. interval: between calls to a worker that is up.
  Greeting(Membership& membership, std::shared_ptr<const Member> member, Clock::duration interval);

  ~Greeting();  // cancels a call under way

  // Calls the worker if no call is under way and the pause is over. The pause grows until the
  // worker answers; then it is `interval`, and a busy worker gets no call. Reports each result to
  // the membership; a worker that has answered may miss one call.
  void Continue();

 private:
  void Ended(const grpc::Status& status);

  Membership& membership_;
  const std::shared_ptr<const Member> member_;
  const Clock::duration interval_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::GreetRequest request_;
  v1::GreetResponse response_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  int misses_ ABSL_GUARDED_BY(mutex_) = 0;  // in a row, since it answered
  Clock::duration pause_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point next_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
