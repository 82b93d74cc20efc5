#include "server/process/reflection_limit.h"

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "grpcpp/server_context.h"
#include "server/process/call_gate.h"

namespace hilbert_ring::server {
namespace {

namespace experimental = grpc::experimental;

// Never opens its place in the gate, so that the gate ends the call.
class Limited : public experimental::Interceptor {
 public:
  Limited(CallGate& gate, grpc::ServerContextBase& context) : gate_(gate), context_(context) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            experimental::InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      auto place = BlockingPlace::Enter(gate_, context_);
      if (place.ok()) {
        place_.emplace(*std::move(place));
      } else {
        context_.TryCancel();
      }
    }
    methods->Proceed();
  }

 private:
  CallGate& gate_;
  grpc::ServerContextBase& context_;
  std::optional<BlockingPlace> place_;
};

class Factory : public experimental::ServerInterceptorFactoryInterface {
 public:
  experimental::Interceptor* CreateServerInterceptor(experimental::ServerRpcInfo* call) override {
    if (!std::string_view(call->method()).starts_with("/grpc.reflection.")) return nullptr;
    return new Limited(gate_, *call->server_context());
  }

 private:
  CallGate gate_{
      {.calls_per_peer = kReflectionsOfPeer, .open_timeout = std::chrono::milliseconds(5000)}};
};

}  // namespace

std::vector<std::unique_ptr<experimental::ServerInterceptorFactoryInterface>> LimitReflection() {
  std::vector<std::unique_ptr<experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>());
  return factories;
}

}  // namespace hilbert_ring::server
