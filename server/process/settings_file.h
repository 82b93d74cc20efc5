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

// Skips a byte order mark of UTF-8. INVALID_ARGUMENT, with the line or key: a line without key and
// value, a section, a repeated key, a list that is empty or not closed, text behind a quote, a
// control character.
absl::StatusOr<std::vector<SettingLine>> ParseSettingsFile(std::string_view text);

}  // namespace hilbert_ring::server
