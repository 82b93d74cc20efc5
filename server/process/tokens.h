// Who may speak to whom within the service (docs/adr/0009-membership-and-tokens.md): workers join
// with a token that the operator gives out, and the coordinator's calls to a worker carry tokens
// that only the two of them can make.
//
//   const auto token = ReadTokenFile("/run/secrets/join");      // coordinator and worker
//   AddJoinToken(context, *token);                              // worker, for Register
//   CheckJoinToken(context, *token);                            // coordinator
//   CheckPeerName(context, "worker");                           // of a certificate, where there is
//   TLS
//
//   const std::string secret = DrawSecret();                    // coordinator, told to the worker
//   AddCallToken(context, secret, "Run");                       // coordinator, anew for each call
//   CheckCallToken(context, secret, "Run");                     // worker
//
// Neither a token nor a secret is ever part of a message or of a log.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace hilbert_ring::server {

inline constexpr int kLeastTokenBytes = 16;

// The content of a regular file without white space around it. INVALID_ARGUMENT when it is no such
// file, too short to be a secret, or no text; else the code follows errno.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// 32 bytes from the system's source of randomness, in hexadecimal digits.
absl::StatusOr<std::string> DrawSecret();

void AddJoinToken(grpc::ClientContext& context, const std::string& token);

// UNAUTHENTICATED (JOIN_TOKEN) when the call has no token or another one. An empty `token`: none is
// asked for.
absl::Status CheckJoinToken(const grpc::ServerContextBase& context, const std::string& token);

// UNAUTHENTICATED (PEER_NAME) when the caller's certificate has not this name. An empty name: any
// will do.
absl::Status CheckPeerName(const grpc::ServerContextBase& context, const std::string& name);

// call: its method's name. A token is good for one method.
void AddCallToken(grpc::ClientContext& context, const std::string& secret, absl::string_view call);

// UNAUTHENTICATED (JOIN_TOKEN) when it was not made with this secret for this call; an empty secret
// makes none.
absl::Status CheckCallToken(const grpc::ServerContextBase& context, const std::string& secret,
                            absl::string_view call);

}  // namespace hilbert_ring::server
