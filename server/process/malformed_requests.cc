#include "server/process/malformed_requests.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/descriptor.h"
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

}  // namespace

std::unique_ptr<experimental::ServerInterceptorFactoryInterface> NameMalformedRequests() {
  return std::make_unique<NamedFactory>();
}

}  // namespace hilbert_ring::server
