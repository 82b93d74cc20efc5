// The caller of a call: by token, else by certificate; without either, all callers are one.
//
//   auto caller = callers.Of(context);  // in each handler
//   if (caller.ok()) status = CheckRole(*caller, {Role::kSubmit, Role::kAdmin}, "run jobs");
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "server/access/auth_tokens.h"
#include "server/access/caller.h"
#include "server/process/http_endpoint.h"

namespace hilbert_ring::server {

// Thread-safe.
class Callers {
 public:
  // tokens: null if the service requires no token.
  explicit Callers(std::unique_ptr<AuthTokens> tokens) : tokens_(std::move(tokens)) {}

  // UNAUTHENTICATED: AUTH_TOKEN, or PEER_NAME for a certificate without a name.
  absl::StatusOr<Caller> Of(const grpc::ServerContextBase& context);

  // Reads the Authorization header of an HTTP request: Bearer, or Basic with the token as password.
  // Every caller observes if the service requires no token. UNAUTHENTICATED (AUTH_TOKEN).
  absl::StatusOr<Caller> OfHttp(std::string_view authorization);

  absl::Status CheckCaller(std::string_view authorization);  // AUTH_TOKEN

  bool ask_for_tokens() const { return tokens_ != nullptr; }

 private:
  const std::unique_ptr<AuthTokens> tokens_;
};

// PERMISSION_DENIED (ROLE): the caller may not `do_what`.
absl::Status CheckRole(const Caller& caller, absl::Span<const Role> roles,
                       absl::string_view do_what);

// Refuses calls without a token of methods that no handler of ours checks, reflection above all.
// Calls of the `own` services, each "/package.Service/", pass because their handlers check them;
// calls of health pass because probes have no token. `callers` must outlive it. gRPC's threads call
// `refused` for each refused call.
std::shared_ptr<grpc::AuthMetadataProcessor> TokenCheck(
    Callers& callers, std::vector<std::string> own,
    std::function<void(const absl::Status& why)> refused);

// Replies 401 to a request without a valid token, 403 if its role may not `do_what`, and calls
// `refused` with the error. `callers` must outlive it.
HttpEndpoint::Handler ForRoles(Callers& callers, std::vector<Role> roles, std::string do_what,
                               std::function<void(const absl::Status& why)> refused,
                               std::function<HttpReply(const Caller&)> reply);

HttpEndpoint::Handler ForPrometheus(Callers& callers,
                                    std::function<void(const absl::Status& why)> refused,
                                    std::function<HttpReply()> reply);

}  // namespace hilbert_ring::server
