// Reaches a worker at the address that it says, before it gets jobs: one that only sends heartbeats
// (no --host, an address translation, a firewall) would fail every job. One that waits for a job is
// greeted again now and then: an entry of a translation ends, a firewall changes.
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
  // The membership must outlive it. interval: between greetings of a worker that is up.
  Greeting(Membership& membership, std::shared_ptr<const Member> member, Clock::duration interval);

  // Ends a call that is under way.
  ~Greeting();

  // Calls the worker if no call is under way and the pause after the last one is over: until it has
  // answered, a pause that grows; then the interval, and not while it works. Tells the membership
  // how a call ended; of one that had answered, that the second in a row had no answer.
  void Continue();

 private:
  void Call();
  void Ended(const grpc::Status& status);

  Membership& membership_;
  const std::shared_ptr<const Member> member_;
  const Clock::duration interval_;
  // The call's; used by one at a time.
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
