// A message of the service as JSON: every field under its .proto name, numbers as numbers. NaN and
// infinities, which JSON lacks, are strings.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {

nlohmann::ordered_json JsonNumber(double value);

// Returns indented JSON without a final newline.
std::string MessageAsJson(const google::protobuf::Message& message);

// Returns the service's plan. INTERNAL: it is not JSON.
absl::StatusOr<std::string> CheckedJson(const std::string& text);

// Prints the answer of a short call as JSON, or as text by `print`. Returns the exit code.
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
