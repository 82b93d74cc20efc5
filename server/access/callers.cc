#include "server/access/callers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpc/grpc_security_constants.h"
#include "server/process/call_gate.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr absl::string_view kBasic = "Basic ";
constexpr std::string_view kHealth = "/grpc.health.v1.Health/";

template <typename Metadata>
std::string_view ValueOf(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return "";
  return {found->second.data(), found->second.size()};
}

// The first alternative name of the caller's certificate, else its common name; empty without a
// certificate. UNAUTHENTICATED (PEER_NAME) without a name: its jobs would have no owner.
absl::StatusOr<std::string> CertificateName(const grpc::ServerContextBase& context) {
  const auto peer = context.auth_context();
  if (peer == nullptr) return "";
  const std::vector<grpc::string_ref> names = peer->GetPeerIdentity();
  if (!names.empty() && !names.front().empty()) {
    return std::string(names.front().data(), names.front().size());
  }
  if (peer->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty()) return "";
  return wire::ErrorOf(
      wire::reason::kPeerName,
      "the caller's certificate has neither an alternative name nor a common name");
}

// Turns "Basic" and base64 of "name:token" into "Bearer token"; leaves other values as they are.
std::string AsBearer(std::string_view authorization) {
  absl::string_view rest(authorization.data(), authorization.size());
  std::string name_and_token;
  if (!absl::StartsWithIgnoreCase(rest, kBasic) ||
      !absl::Base64Unescape(rest.substr(kBasic.size()), &name_and_token)) {
    return std::string(authorization);
  }
  return absl::StrCat("Bearer ", name_and_token.substr(name_and_token.find(':') + 1));
}

class Processor : public grpc::AuthMetadataProcessor {
 public:
  Processor(Callers& callers, std::vector<std::string> own,
            std::function<void(const absl::Status&)> refused)
      : callers_(callers), own_(std::move(own)), refused_(std::move(refused)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* /*context*/,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const std::string_view path = ValueOf(metadata, ":path");
    const auto begins = [path](const std::string& service) { return path.starts_with(service); };
    if (std::ranges::any_of(own_, begins) || path.starts_with(kHealth)) return grpc::Status::OK;
    const absl::Status status = callers_.CheckCaller(ValueOf(metadata, kAuthorization));
    if (status.ok()) return grpc::Status::OK;
    refused_(status);
    return {grpc::StatusCode::UNAUTHENTICATED, std::string(status.message())};
  }

 private:
  Callers& callers_;
  const std::vector<std::string> own_;
  const std::function<void(const absl::Status&)> refused_;
};

}  // namespace

absl::StatusOr<Caller> Callers::Of(const grpc::ServerContextBase& context) {
  if (tokens_ != nullptr) {
    return tokens_->Find(ValueOf(context.client_metadata(), kAuthorization));
  }
  ASSIGN_OR_RETURN(auto name, CertificateName(context));
  Caller caller{.name = std::move(name)};
  caller.turns = caller.name.empty() ? PeerHost(context.peer()) : caller.name;
  return caller;
}

absl::Status Callers::CheckCaller(std::string_view authorization) {
  return tokens_ == nullptr ? absl::OkStatus() : tokens_->Find(authorization).status();
}

absl::StatusOr<Caller> Callers::OfHttp(std::string_view authorization) {
  if (tokens_ == nullptr) return Caller{.role = Role::kObserve};
  return tokens_->Find(AsBearer(authorization));
}

absl::Status CheckRole(const Caller& caller, absl::Span<const Role> roles,
                       absl::string_view do_what) {
  if (std::find(roles.begin(), roles.end(), caller.role) != roles.end()) return absl::OkStatus();
  return wire::ErrorOf(
      wire::reason::kRole,
      absl::StrCat(caller.name.empty() ? "a caller without a name" : caller.name, " has the role ",
                   NameOf(caller.role), ", which may not ", do_what));
}

std::shared_ptr<grpc::AuthMetadataProcessor> TokenCheck(
    Callers& callers, std::vector<std::string> own,
    std::function<void(const absl::Status&)> refused) {
  return std::make_shared<Processor>(callers, std::move(own), std::move(refused));
}

HttpEndpoint::Handler ForRoles(Callers& callers, std::vector<Role> roles, std::string do_what,
                               std::function<void(const absl::Status& why)> refused,
                               std::function<HttpReply(const Caller&)> reply) {
  return [&callers, roles = std::move(roles), do_what = std::move(do_what),
          refused = std::move(refused),
          reply = std::move(reply)](std::string_view authorization) -> HttpReply {
    const auto caller = callers.OfHttp(authorization);
    const absl::Status status = caller.ok() ? CheckRole(*caller, roles, do_what) : caller.status();
    if (status.ok()) return reply(*caller);
    refused(status);
    return {.status = absl::IsUnauthenticated(status) ? 401 : 403,
            .body = absl::StrCat(status.message(), "\n")};
  };
}

HttpEndpoint::Handler ForPrometheus(Callers& callers,
                                    std::function<void(const absl::Status& why)> refused,
                                    std::function<HttpReply()> reply) {
  return ForRoles(callers, {Role::kObserve, Role::kAdmin}, "see the service's figures",
                  std::move(refused),
                  [reply = std::move(reply)](const Caller&) { return reply(); });
}

}  // namespace hilbert_ring::server
