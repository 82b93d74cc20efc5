// Who makes a call, and whether it may: by token where there are tokens, else by certificate, else
// all callers are one.
//
//   auto caller = callers.Of(context);                                  // in each handler
//   if (caller.ok()) status = CheckRole(*caller, {Role::kSubmit, Role::kAdmin}, "run jobs");
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "server/access/auth_tokens.h"
#include "server/access/caller.h"

namespace hilbert_ring::server {

// Thread-safe.
class Callers {
 public:
  // tokens: null where none are asked for.
  explicit Callers(std::unique_ptr<AuthTokens> tokens) : tokens_(std::move(tokens)) {}

  // UNAUTHENTICATED: AUTH_TOKEN, or PEER_NAME for a certificate without a name. This must outlive
  // the caller.
  absl::StatusOr<Caller> Of(const grpc::ServerContextBase& context);

  // By the Authorization header of an HTTP request, whose scheme may be Basic as well: the token is
  // the password then. Where no tokens are asked for all observe. UNAUTHENTICATED (AUTH_TOKEN).
  absl::StatusOr<Caller> OfHttp(std::string_view authorization);

  // By the header of a call: whether it may be made at all. UNAUTHENTICATED (AUTH_TOKEN).
  absl::Status CheckCaller(std::string_view authorization);

  bool ask_for_tokens() const { return tokens_ != nullptr; }

 private:
  const std::unique_ptr<AuthTokens> tokens_;
};

// PERMISSION_DENIED (ROLE): the caller may not `do_what`.
absl::Status CheckRole(const Caller& caller, absl::Span<const Role> roles,
                       absl::string_view do_what);

// Refuses calls without a token of methods that no handler of ours checks, reflection above all.
// Those of `own` services, each "/package.Service/", and health pass: the handlers say more, and
// probes have no token. `callers` must outlive it. refused: told of each call that is, by threads
// of gRPC's.
std::shared_ptr<grpc::AuthMetadataProcessor> TokenCheck(
    Callers& callers, std::vector<std::string> own,
    std::function<void(const absl::Status& why)> refused);

}  // namespace hilbert_ring::server
