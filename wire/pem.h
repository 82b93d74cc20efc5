// Checks certificates, keys and authorities in PEM before a connection. gRPC's own error for them
// is an empty address list.
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

// INVALID_ARGUMENT, with the name: the text has no certificate, or a damaged one.
absl::Status CheckAuthorities(const PemText& ca);

// Returns the chain, the process's own certificate first, and its key as one text in PEM.
// INVALID_ARGUMENT, with the name: errors of CheckAuthorities; the key is missing, has a
// passphrase, or belongs to another certificate; gRPC or the HTTP server rejects its kind. An
// expired certificate is accepted, because its file may be replaced at any time.
absl::StatusOr<std::string> CheckIdentity(const PemText& cert, const PemText& key);

}  // namespace hilbert_ring::wire
