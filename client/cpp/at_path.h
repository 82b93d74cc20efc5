// The path of a file before a status' message, and the bytes that no path has.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/with_message.h"

namespace hilbert_ring::client {

// "PATH: message", with the code and payloads of a status that is not OK.
inline absl::Status AtPath(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return WithMessage(status, absl::StrCat(path, ": ", status.message()));
}

// INVALID_ARGUMENT: the path has a NUL, at which the system ends it, so that another file is meant.
inline absl::Status CheckPath(const std::string& path) {
  if (path.find('\0') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(path), "\": a path has no NUL"));
}

}  // namespace hilbert_ring::client
