// The error for a response that breaks the protocol.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {

inline absl::Status ProtocolError(const std::string& what) {
  return absl::InternalError(absl::StrCat("the service broke the protocol: ", what));
}

}  // namespace hilbert_ring::client
