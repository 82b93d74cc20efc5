// The path of a file before a status' message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/with_message.h"

namespace hilbert_ring::client {

// "PATH: message", with the code and payloads of a status that is not OK.
inline absl::Status AtPath(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return WithMessage(status, absl::StrCat(path, ": ", status.message()));
}

}  // namespace hilbert_ring::client
