// The file of --config: a key and a value a line.
//
//   # a comment, as an empty line means nothing
//   grpc-port=8001         # another, behind a blank
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

// A byte order mark of UTF-8 is skipped. INVALID_ARGUMENT, naming the line or its key: no key and
// value, a section, a key that comes twice, a key without a value or with a list that is empty or
// not closed, text behind a quote, a control character.
absl::StatusOr<std::vector<SettingLine>> ParseSettingsFile(std::string_view text);

}  // namespace hilbert_ring::server
