// A certificate, its key and an authority in files: all that is of one look together, read and
// checked as one.
//
//   const TlsFiles files{.cert = "tls.crt", .key = "tls.key", .ca = "ca.crt"};
//   ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsFiles(files));
//   ASSIGN_OR_RETURN(const std::string identity, IdentityOf(files, texts));
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring::server {

inline constexpr size_t kMostPemBytes = 4 << 20;  // of a file

// Paths of files in PEM.
struct TlsFiles {
  std::string cert;  // the chain, this process's own first; empty: no TLS
  std::string key;
  std::string ca;  // that the other side's certificate is of; empty: none is asked of it
  // By which errors name them.
  const char* cert_flag = "--tls-cert";
  const char* key_flag = "--tls-key";
  const char* ca_flag = "--tls-ca";
};

// What they hold.
struct TlsTexts {
  std::string cert, key, ca;
  bool operator==(const TlsTexts&) const = default;
};

// INVALID_ARGUMENT, naming the file: it cannot be read, or is no regular file.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files);

// The chain and its key in one text in PEM. Errors: those of wire/pem.h, naming the file.
absl::StatusOr<std::string> IdentityOf(const TlsFiles& files, const TlsTexts& texts);

// Errors: those of both. A certificate that has expired is none: the file may be replaced at any
// time (certificate_watch.h warns).
absl::Status CheckTlsFiles(const TlsFiles& files);

}  // namespace hilbert_ring::server
