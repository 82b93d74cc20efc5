// TLS from files, which are read again when they change: a certificate is renewed without a
// restart, and calls that are under way go on.
//
//   const TlsFiles files{.cert = "tls.crt", .key = "tls.key", .ca = "ca.crt"};
//   if (absl::Status status = CheckTlsFiles(files); !status.ok()) return status;
//   StartGrpc({.host = host, .credentials = ServerCredentials(files)}, services);
//   Dial(address, silence, {.credentials = CallCredentials(files), .peer_name = "worker"});
//
// The files are looked at once a second. New ones count for the connections that are made from then
// on. While a certificate is there and its key is not yet, new connections fail, and are tried
// again.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace hilbert_ring::server {

inline constexpr size_t kMostPemBytes = 4 << 20;  // of a file

// Paths of files in PEM.
struct TlsFiles {
  std::string cert;  // the chain, this process's own first; empty: no TLS
  std::string key;
  std::string ca;  // that the other side's certificate is of; empty: none is asked of it
};

// INVALID_ARGUMENT, naming the file: it cannot be read, is no regular file, no certificate or no
// key without a passphrase, or certificate and key do not belong together. A certificate that has
// expired is none of that: the file may be replaced at any time (certificate_watch.h warns).
absl::Status CheckTlsFiles(const TlsFiles& files);

// With a ca: a connection without a certificate of it is refused.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const TlsFiles& files);

// Of calls to processes whose certificates are of files.ca, which must be given.
std::shared_ptr<grpc::ChannelCredentials> CallCredentials(const TlsFiles& files);

}  // namespace hilbert_ring::server
