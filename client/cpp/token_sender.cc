#include "client/cpp/token_sender.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

class Interceptor : public grpc::experimental::Interceptor {
 public:
  explicit Interceptor(const Access& access) : access_(access) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      // Without a token the service refuses the call with its own message.
      if (const auto token = TokenOf(access_); token.ok()) {
        methods->GetSendInitialMetadata()->insert(
            {"authorization", absl::StrCat("Bearer ", *token)});
      }
    }
    methods->Proceed();
  }

 private:
  const Access& access_;  // owned by the factory, which outlives its channel's calls
};

class Factory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit Factory(Access access) : access_(std::move(access)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new Interceptor(access_);
  }

 private:
  const Access access_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> TokenSender(
    const Access& access) {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> senders;
  if (!access.token.empty() || !access.token_file.empty()) {
    senders.push_back(std::make_unique<Factory>(access));
  }
  return senders;
}

}  // namespace hilbert_ring::client
