// TLS from files, which are read again when they change: a certificate is renewed without a
// restart, and calls that are under way go on.
//
//   if (absl::Status status = CheckTlsFiles(files); !status.ok()) return status;
//   ASSIGN_OR_RETURN(auto credentials, ServerCredentials(files, "--port"));
//   StartGrpc({.host = host, .credentials = credentials}, services);
//   ASSIGN_OR_RETURN(auto calls, CallCredentials(files));
//   Dial(address, silence, {.credentials = calls, .peer_name = "worker"});
//
// The files are looked at twice a second, as long as the credentials live. New ones count for the
// connections that are made from two seconds later on. While they are not right, as a certificate
// whose key is not there yet, the ones before go on.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "server/process/tls_files.h"

namespace hilbert_ring::server {

// With a ca: a connection without a certificate of it is refused. flag: of the port, for the log.
// Errors: those of TlsCopies::Make.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files,
                                                                           std::string flag);

// Of calls to processes whose certificates are of files.ca, which must be given. Errors likewise.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CallCredentials(const TlsFiles& files);

}  // namespace hilbert_ring::server
