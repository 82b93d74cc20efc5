// How many short calls, with one message each way, a host has at work at once. gRPC gives each a
// thread from its message on until its answer is taken, which a caller may put off for long.
//
//   CallLimits limits(128);
//   StartGrpc({.short_calls = &limits}, ...);                 // counts them
//   if (absl::Status s = limits.Check(*context); !s.ok()) ... // in each handler, at its begin
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/process/peer_network.h"

namespace hilbert_ring::server {

// Thread-safe. Outlives the servers whose calls it counts.
class CallLimits {
 public:
  explicit CallLimits(int calls_per_peer, PeerIs peer = PeerIs::kNetwork)
      : calls_per_peer_(calls_per_peer), peer_(peer) {}

  // RESOURCE_EXHAUSTED (TOO_MANY_CALLS) where the call's host has too many at work.
  absl::Status Check(const grpc::ServerContextBase& context) const;

  // Counts the unary calls of a server, but for those of gRPC's own services.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Counter();

  int calls() const;  // of all hosts, those included that are refused

 private:
  class Counted;
  class CountedFactory;

  void Enter(const grpc::ServerContextBase& context);
  void Leave(const grpc::ServerContextBase& context);

  const int calls_per_peer_;
  const PeerIs peer_;
  mutable Mutex mutex_;
  struct Call {
    std::string peer;
    bool refused = false;
  };
  std::map<const grpc::ServerContextBase*, Call> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> of_peer_ ABSL_GUARDED_BY(mutex_);  // that are not refused
};

}  // namespace hilbert_ring::server
