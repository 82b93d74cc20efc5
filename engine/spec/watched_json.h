// Parses JSON from an unauthenticated caller, without repeated keys and deep nesting.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring {

// what: the document's name in messages. INVALID_ARGUMENT, of bounded length: malformed JSON, a
// NUL, more than 8 levels, a repeated key (FieldOf: that key).
absl::StatusOr<nlohmann::json> ParseWatchedJson(std::string_view json, std::string_view what);

// The text's first 80 bytes as printable ASCII, in quotes.
std::string Quoted(std::string_view text);

}  // namespace hilbert_ring
