// TLS from files, which are read again when they change. A renewed certificate needs no restart,
// and open calls go on.
//
//   ASSIGN_OR_RETURN(auto credentials, ServerCredentials(files, "--port"));
//   ASSIGN_OR_RETURN(auto calls, CallCredentials(files));
//
// The files are checked twice a second while the credentials live. New files count for connections
// made 2 s later. While they are wrong, for example without the new key, the old ones stay in use.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "server/process/tls_files.h"

namespace hilbert_ring::server {

// Requires certificates of files.ca, if given. flag: of the port. Errors of TlsCopies::Make.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files,
                                                                           std::string flag);

// Requires files.ca. Errors of TlsCopies::Make.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CallCredentials(const TlsFiles& files);

}  // namespace hilbert_ring::server
