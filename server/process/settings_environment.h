// Settings from environment variables: HILBERT_RING_GRPC_PORT for --grpc-port.
#pragma once

#include <map>
#include <string>
#include <vector>

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

}  // namespace hilbert_ring::server
