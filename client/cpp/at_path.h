// Paths of files in messages.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/with_message.h"

namespace hilbert_ring::client {

// Prefixes the message of a status that is not OK: "PATH: message".
inline absl::Status AtPath(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return WithMessage(status, absl::StrCat(path, ": ", status.message()));
}

// INVALID_ARGUMENT: the path has a NUL, where the system would end it and open another file.
inline absl::Status CheckPath(const std::string& path) {
  if (path.find('\0') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(path), "\": a path has no NUL"));
}

}  // namespace hilbert_ring::client
