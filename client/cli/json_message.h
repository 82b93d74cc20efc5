// A message of the service as JSON: the field names of the .proto, every field, numbers as numbers
// (NaN and infinities, which JSON does not have, as strings).
#pragma once

#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {

// As said above of one number.
nlohmann::ordered_json JsonNumber(double value);

// Indented, without a newline at the end.
std::string MessageAsJson(const google::protobuf::Message& message);

}  // namespace hilbert_ring::cli
