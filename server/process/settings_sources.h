// Settings from environment variables (HILBERT_RING_GRPC_PORT for --grpc-port) and from the file of
// --config:
//
//   # a comment
//   grpc-port=8001         # a comment behind a blank
//   data-root="/x/a #b"    # quotes of either kind, around all of the value
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

inline constexpr char kVariablePrefix[] = "HILBERT_RING_";

std::string VariableOf(const std::string& flag);  // flag: "grpc-port"

struct EnvironmentSettings {
  std::map<std::string, std::string> arguments;  // "--grpc-port": "8001"
  std::vector<std::string> warnings;
};

// Reads variables of flags that the command line does not give. Ignores empty ones and, with a
// warning, the ports that Kubernetes sets for a Service hilbert-ring ("tcp://10.0.0.1:8001").
EnvironmentSettings ReadEnvironment(const std::vector<std::string>& flags, int argc,
                                    const char* const* argv);

// Adds variables to the flags in a message: "--grpc-port (HILBERT_RING_GRPC_PORT): ...".
std::string WithVariables(std::string message, const EnvironmentSettings& environment);

// Warnings of variables that are not in `known` and not Kubernetes' of a Service.
std::vector<std::string> UnknownVariables(const std::vector<std::string>& known);

struct SettingLine {
  std::string key, value;  // neither is empty
};

// Skips a UTF-8 byte order mark. INVALID_ARGUMENT, with the line or key.
absl::StatusOr<std::vector<SettingLine>> ParseSettingsFile(std::string_view text);

}  // namespace hilbert_ring::server
