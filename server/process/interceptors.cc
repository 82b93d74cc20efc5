#include "server/process/interceptors.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/server_context.h"
#include "server/process/call_gate.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

namespace experimental = grpc::experimental;

// method: "/package.Service/Method"
std::string RequestType(const std::string& method) {
  const std::string name = absl::StrReplaceAll(method.substr(1), {{"/", "."}});
  const auto* const known =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
  return known == nullptr ? "message" : known->input_type()->name();
}

class Named : public experimental::Interceptor {
 public:
  explicit Named(const char* method) : method_(method) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Point = experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE)) {
      malformed_ = methods->GetRecvMessage() == nullptr;
    }
    // A call that found no free thread has no request either. Its status is not INTERNAL.
    if (malformed_ && methods->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS) &&
        methods->GetSendStatus().error_code() == grpc::StatusCode::INTERNAL) {
      methods->ModifySendStatus(
          wire::ToGrpc(wire::ErrorOf(wire::reason::kInvalidOpen,
                                     absl::StrCat("the request is not a ", RequestType(method_)))));
    }
    methods->Proceed();
  }

 private:
  const std::string method_;
  bool malformed_ = false;
};

class NamedFactory : public experimental::ServerInterceptorFactoryInterface {
 public:
  experimental::Interceptor* CreateServerInterceptor(experimental::ServerRpcInfo* call) override {
    const bool unary = call->type() == experimental::ServerRpcInfo::Type::UNARY;
    if (!unary || std::string_view(call->method()).starts_with("/grpc.")) return nullptr;
    return new Named(call->method());
  }
};

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

class LimitedFactory : public experimental::ServerInterceptorFactoryInterface {
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

Interceptors InterceptorsOf(bool reflection) {
  Interceptors factories;
  if (reflection) factories.push_back(std::make_unique<LimitedFactory>());
  factories.push_back(std::make_unique<NamedFactory>());
  return factories;
}

}  // namespace hilbert_ring::server
