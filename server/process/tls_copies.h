// Copies of TLS files for gRPC's file watcher (1.51), which ends the process when it reads an empty
// file (ConvertToTsiPemKeyCertPair asserts), as a renewal that copies in place leaves for a moment,
// and takes a certificate with another's key (grpc/grpc#26709 was closed). It is given paths of
// memory that holds what was found right, never the files themselves.
//
//   ASSIGN_OR_RETURN(auto copies, TlsCopies::Make(files, "--grpc-port"));
//   FileWatcherCertificateProvider(copies->paths().key, copies->paths().cert, ...);
//   copies->Look();  // again and again
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/process/tls_files.h"

namespace hilbert_ring::server {

// One thread at a time.
class TlsCopies {
 public:
  // port: which of gRPC's they are of, as the log says it. Errors: those of CheckTlsFiles;
  // UNAVAILABLE when the system gives no memory.
  static absl::StatusOr<std::unique_ptr<TlsCopies>> Make(TlsFiles files, std::string port);

  // Certificate and key are one file, so that who reads both across a change can see it: each
  // version has another time of its last change, in seconds.
  const TlsFiles& paths() const { return paths_; }

  // New files take the place of the copies, if they are right; if not, the log says once why, and
  // the copies stay.
  void Look();

 private:
  TlsCopies(TlsFiles files, std::string port);

  absl::Status Renew(const TlsTexts& texts);
  absl::Status Copy(const TlsTexts& texts);

  const TlsFiles files_;
  const std::string port_;
  TlsTexts texts_;  // of which the copies are
  int64_t version_ = 0;
  // Of memory, -1: none yet. They are never closed: the watcher may outlive this object for a
  // moment, and would read what gets the number next.
  int identity_ = -1, ca_ = -1;
  TlsFiles paths_;
  absl::Status told_;
};

}  // namespace hilbert_ring::server
