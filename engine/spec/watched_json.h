// JSON that anybody may have written: no repeated keys, no deep nesting, errors that name the
// field.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring {

// what: as messages call the document, "the job spec". INVALID_ARGUMENT, of bounded length:
// malformed JSON, a NUL, more than 8 levels, a key that comes twice in one object (FieldOf: that
// key).
absl::StatusOr<nlohmann::json> ParseWatchedJson(std::string_view json, std::string_view what);

// Printable ASCII of the text's first 80 bytes, in quotes.
std::string Quoted(std::string_view text);

}  // namespace hilbert_ring
