// Reads the file of --config.
//
//   # a comment
//   grpc-port=8001         # a comment behind a blank
//   data-root="/x/a #b"    # quotes of either kind, around all of the value
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

struct SettingLine {
  std::string key, value;  // neither is empty
};

// Skips a UTF-8 byte order mark. INVALID_ARGUMENT, with the line or key.
absl::StatusOr<std::vector<SettingLine>> ParseSettingsFile(std::string_view text);

}  // namespace hilbert_ring::server
