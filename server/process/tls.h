// TLS from files, which are read again when they change. A renewed certificate needs no restart,
// and open calls go on.
//
//   ASSIGN_OR_RETURN(auto credentials, ServerCredentials(files, "--port"));
//   ASSIGN_OR_RETURN(auto calls, CallCredentials(files));
//
// The files are checked twice a second while the credentials live. New files count for connections
// made 2 s later. While they are wrong, for example without the new key, the old ones stay in use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "server/process/tls_files.h"

namespace hilbert_ring::server {

// Copies of checked TLS files in memory, given to gRPC's file watcher (1.51). The watcher ends the
// process when it reads an empty file, which a renewal in place leaves for a moment, and accepts a
// certificate with another's key (grpc/grpc#26709). Not thread-safe.
//
//   ASSIGN_OR_RETURN(auto copies, TlsCopies::Make(files, "--grpc-port"));
//   FileWatcherCertificateProvider(copies->paths().key, copies->paths().cert, ...);
//   copies->Look();  // at intervals
class TlsCopies {
 public:
  // port: in log lines. Errors of CheckTlsFiles; UNAVAILABLE if the system gives no memory.
  static absl::StatusOr<std::unique_ptr<TlsCopies>> Make(TlsFiles files, std::string port);

  // Certificate and key are one file, whose time of change, in seconds, is the version: a reader of
  // both can detect a change between its reads.
  const TlsFiles& paths() const { return paths_; }

  // Copies new files if they are right. If not, logs the error once and keeps the copies.
  void Look();

 private:
  TlsCopies(TlsFiles files, std::string port);

  absl::Status Renew(const TlsTexts& texts);
  absl::Status Copy(const TlsTexts& texts);

  const TlsFiles files_;
  const std::string port_;
  TlsTexts texts_;  // that were copied
  int64_t version_ = 0;
  // Memory files, -1 at first. Never closed: the watcher may outlive this object for a moment, and
  // would read the next file of that number.
  int identity_ = -1, ca_ = -1;
  TlsFiles paths_;
  absl::Status logged_;
};

// Requires certificates of files.ca, if given. flag: of the port. Errors of TlsCopies::Make.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files,
                                                                           std::string flag);

// Requires files.ca. Errors of TlsCopies::Make.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CallCredentials(const TlsFiles& files);

}  // namespace hilbert_ring::server
