// A message of the service as JSON: every field under its .proto name, numbers as numbers. NaN and
// infinities, which JSON lacks, are strings.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "google/protobuf/message.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {

nlohmann::ordered_json JsonNumber(double value);

// Returns indented JSON without a final newline.
std::string MessageAsJson(const google::protobuf::Message& message);

// Returns the words of an enumerator: "STATE_WAITING_FOR_WORKERS" becomes "waiting_for_workers",
// and
// "", the name of an unknown value, `other`.
std::string PlainName(const std::string& enumerator, const std::string& other);

// Returns a job's timeline for Perfetto (ui.perfetto.dev) and chrome://tracing. The job and each
// worker are processes. Concurrent activities have tracks of their own.
std::string TraceAsJson(const v1::Report& report);

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
