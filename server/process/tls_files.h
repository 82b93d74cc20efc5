// Reads and checks the files of a certificate, its key and an authority together.
//
//   ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsFiles(files));
//   ASSIGN_OR_RETURN(const std::string identity, IdentityOf(files, texts));
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring::server {

inline constexpr size_t kMostPemBytes = 4 << 20;  // of a file

struct TlsFiles {
  std::string cert;  // the chain, own certificate first; empty: no TLS
  std::string key;
  std::string ca;  // authority of the other side's certificates; empty: not required
  const char* cert_flag = "--tls-cert";
  const char* key_flag = "--tls-key";
  const char* ca_flag = "--tls-ca";
};

struct TlsTexts {
  std::string cert, key, ca;
  bool operator==(const TlsTexts&) const = default;
};

// INVALID_ARGUMENT if a file cannot be read.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsFiles& files);

// Checks all texts, and returns the chain and its key as one PEM text. Errors of wire/pem.h.
absl::StatusOr<std::string> IdentityOf(const TlsFiles& files, const TlsTexts& texts);

// Reads and checks the files. Errors of ReadTlsFiles and IdentityOf. An expired certificate is
// accepted, and certificate_watch.h warns of it.
absl::Status CheckTlsFiles(const TlsFiles& files);

}  // namespace hilbert_ring::server
