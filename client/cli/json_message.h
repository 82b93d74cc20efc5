// A message of the service as JSON: the field names of the .proto, every field, numbers as numbers
// (NaN and infinities, which JSON does not have, as strings).
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {

// As said above of one number.
nlohmann::ordered_json JsonNumber(double value);

// Indented, without a newline at the end.
std::string MessageAsJson(const google::protobuf::Message& message);

// A plan as the service wrote it. INTERNAL where it is no JSON.
absl::StatusOr<std::string> CheckedJson(const std::string& text);

// Prints the answer of a short call as JSON or, by `print`, for people. Returns the exit code.
template <typename Answer, typename Print>
int PrintAnswer(const GlobalOptions& global, const absl::StatusOr<Answer>& answer, Print print) {
  if (!answer.ok()) return ServiceFailed(global, answer.status());
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", MessageAsJson(*answer).c_str());
  } else {
    print(*answer);
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli
