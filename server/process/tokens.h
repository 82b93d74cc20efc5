// Authentication within the service (docs/adr/0009-membership-and-tokens.md). Workers join with the
// operator's token. The coordinator's calls to a worker have tokens that only those two can make.
//
//   const auto token = ReadTokenFile("/run/secrets/join");      // coordinator and worker
//   AddJoinToken(context, *token);                              // worker, with Register
//   CheckJoinToken(context, *token);                            // coordinator
//   CheckPeerName(context, "worker");                           // coordinator, with TLS
//
//   const std::string secret = DrawSecret();                    // coordinator, sent to the worker
//   AddCallToken(context, secret, "Run");                       // coordinator, anew for each call
//   CheckCallToken(context, secret, "Run");                     // worker
//
// Tokens and secrets never appear in messages or logs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace hilbert_ring::server {

inline constexpr int kLeastTokenBytes = 16;

// The trimmed text of a file. INVALID_ARGUMENT if it is not regular, not text or too short.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

absl::StatusOr<std::string> DrawSecret();  // 32 random bytes in hexadecimal

void AddJoinToken(grpc::ClientContext& context, const std::string& token);

// UNAUTHENTICATED (JOIN_TOKEN) unless the call has the token, or `token` is empty.
absl::Status CheckJoinToken(const grpc::ServerContextBase& context, const std::string& token);

// UNAUTHENTICATED (PEER_NAME) unless the caller's certificate has the name, or `name` is empty.
absl::Status CheckPeerName(const grpc::ServerContextBase& context, const std::string& name);

// call: the method's name. A token is valid for one method.
void AddCallToken(grpc::ClientContext& context, const std::string& secret, absl::string_view call);

// UNAUTHENTICATED (JOIN_TOKEN) unless the token was made with this secret for this method.
absl::Status CheckCallToken(const grpc::ServerContextBase& context, const std::string& secret,
                            absl::string_view call);

}  // namespace hilbert_ring::server
