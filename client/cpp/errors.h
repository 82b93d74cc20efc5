// Errors and their messages.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {

// Returns code and payloads (with the reason) of a status that is not OK, with another message.
inline absl::Status WithMessage(const absl::Status& status, std::string_view message) {
  absl::Status changed(status.code(), absl::string_view(message.data(), message.size()));
  status.ForEachPayload([&changed](absl::string_view url, const absl::Cord& payload) {
    changed.SetPayload(url, payload);
  });
  return changed;
}

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

// A response breaks the protocol.
inline absl::Status ProtocolError(const std::string& what) {
  return absl::InternalError(absl::StrCat("the service broke the protocol: ", what));
}

}  // namespace hilbert_ring::client
