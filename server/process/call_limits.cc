#include "server/process/call_limits.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/call_gate.h"
#include "wire/status.h"

namespace hilbert_ring::server {

namespace experimental = grpc::experimental;

// Of one call, gone with it: its answer has been taken then, or its connection is lost.
class CallLimits::Counted : public experimental::Interceptor {
 public:
  Counted(CallLimits& limits, const grpc::ServerContextBase& context)
      : limits_(limits), context_(context) {}
  ~Counted() override {
    if (entered_) limits_.Leave(context_);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            experimental::InterceptionHookPoints::POST_RECV_INITIAL_METADATA) &&
        !std::exchange(entered_, true)) {
      limits_.Enter(context_);
    }
    methods->Proceed();
  }

 private:
  CallLimits& limits_;
  const grpc::ServerContextBase& context_;
  bool entered_ = false;
};

class CallLimits::CountedFactory : public experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CountedFactory(CallLimits& limits) : limits_(limits) {}

  experimental::Interceptor* CreateServerInterceptor(experimental::ServerRpcInfo* call) override {
    const bool unary = call->type() == experimental::ServerRpcInfo::Type::UNARY;
    if (!unary || std::string_view(call->method()).starts_with("/grpc.")) return nullptr;
    return new Counted(limits_, *call->server_context());
  }

 private:
  CallLimits& limits_;
};

std::unique_ptr<experimental::ServerInterceptorFactoryInterface> CallLimits::Counter() {
  return std::make_unique<CountedFactory>(*this);
}

void CallLimits::Enter(const grpc::ServerContextBase& context) {
  std::string peer = PeerHost(context.peer(), peer_);
  const MutexLock lock(mutex_);
  int& of_peer = of_peer_[peer];
  const bool refused = of_peer >= calls_per_peer_;
  if (!refused) ++of_peer;
  calls_.insert_or_assign(&context, Call{.peer = std::move(peer), .refused = refused});
}

void CallLimits::Leave(const grpc::ServerContextBase& context) {
  const MutexLock lock(mutex_);
  const auto call = calls_.find(&context);
  if (!call->second.refused) {
    const auto of_peer = of_peer_.find(call->second.peer);
    if (--of_peer->second == 0) of_peer_.erase(of_peer);
  }
  calls_.erase(call);
}

absl::Status CallLimits::Check(const grpc::ServerContextBase& context) const {
  const MutexLock lock(mutex_);
  const auto call = calls_.find(&context);
  if (call == calls_.end() || !call->second.refused) return absl::OkStatus();
  return wire::ErrorOf(
      wire::reason::kTooManyCalls,
      absl::StrCat("too many short calls are at work: ", call->second.peer, " has ",
                   calls_per_peer_, ", which is the limit of a peer (--max-short-calls-per-peer)"));
}

int CallLimits::calls() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(calls_.size());
}

}  // namespace hilbert_ring::server
