// The path of a file before a status' message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {

// "PATH: message", with the code and payloads of a status that is not OK.
inline absl::Status AtPath(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(path, ": ", status.message()));
  status.ForEachPayload([&result](absl::string_view type, const absl::Cord& payload) {
    result.SetPayload(type, payload);
  });
  return result;
}

}  // namespace hilbert_ring::client
