#include "server/access/callers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/process/call_gate.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr std::string_view kHealth = "/grpc.health.v1.Health/";

template <typename Metadata>
std::string_view ValueOf(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return "";
  return {found->second.data(), found->second.size()};
}

// The first alternative name of the caller's certificate, else its common name; empty without one.
std::string CertificateName(const grpc::ServerContextBase& context) {
  const auto peer = context.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return "";
  const std::vector<grpc::string_ref> names = peer->GetPeerIdentity();
  return names.empty() ? "" : std::string(names.front().data(), names.front().size());
}

class Processor : public grpc::AuthMetadataProcessor {
 public:
  Processor(Callers& callers, std::string own, std::function<void(const absl::Status&)> refused)
      : callers_(callers), own_(std::move(own)), refused_(std::move(refused)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* /*context*/,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const std::string_view path = ValueOf(metadata, ":path");
    if (path.starts_with(own_) || path.starts_with(kHealth)) return grpc::Status::OK;
    const absl::Status status = callers_.CheckCaller(ValueOf(metadata, kAuthorization));
    if (status.ok()) return grpc::Status::OK;
    refused_(status);
    return {grpc::StatusCode::UNAUTHENTICATED, std::string(status.message())};
  }

 private:
  Callers& callers_;
  const std::string own_;
  const std::function<void(const absl::Status&)> refused_;
};

}  // namespace

absl::StatusOr<Caller> Callers::Of(const grpc::ServerContextBase& context) {
  if (tokens_ != nullptr) return tokens_->Find(ValueOf(context.client_metadata(), kAuthorization));
  Caller caller{.name = CertificateName(context)};
  caller.turns = caller.name.empty() ? PeerHost(context.peer()) : caller.name;
  return caller;
}

absl::Status Callers::CheckCaller(std::string_view authorization) {
  return tokens_ == nullptr ? absl::OkStatus() : tokens_->Find(authorization).status();
}

absl::Status Callers::CheckObserver(std::string_view authorization) {
  if (tokens_ == nullptr) return absl::OkStatus();
  const auto caller = tokens_->Find(authorization);
  RETURN_IF_ERROR(caller.status());
  return CheckRole(*caller, {Role::kObserve, Role::kAdmin}, "see the service's figures");
}

absl::Status CheckRole(const Caller& caller, std::initializer_list<Role> roles,
                       absl::string_view do_what) {
  if (std::find(roles.begin(), roles.end(), caller.role) != roles.end()) return absl::OkStatus();
  return wire::ErrorOf(wire::reason::kRole,
                       absl::StrCat("the token of ", caller.name, " has the role ",
                                    NameOf(caller.role), ", which may not ", do_what));
}

std::shared_ptr<grpc::AuthMetadataProcessor> TokenCheck(
    Callers& callers, std::string own, std::function<void(const absl::Status&)> refused) {
  return std::make_shared<Processor>(callers, std::move(own), std::move(refused));
}

}  // namespace hilbert_ring::server
