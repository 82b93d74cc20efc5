// Certificates, keys and authorities in PEM, checked before a connection is made with them: gRPC
// says of them that an address list is empty.
//
//   RETURN_IF_ERROR(CheckAuthorities({.name = "--ca: ca.crt", .text = ca}));
//   ASSIGN_OR_RETURN(const std::string identity, CheckIdentity(cert, key));
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hilbert_ring::wire {

struct PemText {
  std::string name;  // in messages: "--tls-cert: /etc/tls.crt"
  std::string text;
};

// INVALID_ARGUMENT, by its name: it holds no certificate, or one that is damaged or cut off.
absl::Status CheckAuthorities(const PemText& ca);

// The chain, the process's own certificate first, and its key in one text in PEM. INVALID_ARGUMENT,
// by the name of the one that is wrong: as CheckAuthorities; no key without a passphrase; a key of
// another certificate, or of a kind that gRPC or the HTTP server does not take. A certificate that
// has expired is not wrong: its file may be replaced at any time.
absl::StatusOr<std::string> CheckIdentity(const PemText& cert, const PemText& key);

}  // namespace hilbert_ring::wire
