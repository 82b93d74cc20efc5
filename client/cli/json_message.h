// A message of the service as JSON: the field names of the .proto, every field, numbers as numbers
// (NaN and infinities, which JSON does not have, as strings).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {

// As said above of one number.
nlohmann::ordered_json JsonNumber(double value);

// Indented, without a newline at the end.
std::string MessageAsJson(const google::protobuf::Message& message);

// A plan as the service wrote it. INTERNAL where it is no JSON.
absl::StatusOr<std::string> CheckedJson(const std::string& text);

}  // namespace hilbert_ring::cli
