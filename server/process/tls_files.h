// Reads and checks the files of a certificate, its key and an authority together.
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
  std::string ca;  // of the other side's certificate; empty: not required
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

// Returns the chain and its key in one PEM text. Errors of wire/pem.h.
absl::StatusOr<std::string> IdentityOf(const TlsFiles& files, const TlsTexts& texts);

// Errors of both. Accepts expired certificates (certificate_watch.h warns of them).
absl::Status CheckTlsFiles(const TlsFiles& files);

}  // namespace hilbert_ring::server
