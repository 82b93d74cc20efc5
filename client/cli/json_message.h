// A message of the service as JSON, with the field names of the .proto and every field.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace hilbert_ring::cli {

// Indented, without a newline at the end.
std::string MessageAsJson(const google::protobuf::Message& message);

}  // namespace hilbert_ring::cli
