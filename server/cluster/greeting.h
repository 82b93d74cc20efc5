// Reaches a worker at the address that it says, before it gets jobs: one that only sends heartbeats
// (no --host, an address translation, a firewall) would fail every job.
//
//   Greeting greeting(membership, member);
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
  // The membership must outlive it.
  Greeting(Membership& membership, std::shared_ptr<const Member> member);

  // Ends a call that is under way.
  ~Greeting();

  // Until the worker has answered: calls it if no call is under way and the pause after the last
  // one, which grows, is over. Tells the membership how a call ended.
  void Continue();

 private:
  void Call();
  void Ended(const grpc::Status& status);

  Membership& membership_;
  const std::shared_ptr<const Member> member_;
  // The call's; used by one at a time.
  std::unique_ptr<grpc::ClientContext> context_;
  v1::GreetRequest request_;
  v1::GreetResponse response_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::duration pause_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point next_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
