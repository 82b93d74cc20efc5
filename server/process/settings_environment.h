// Settings that environment variables give: HILBERT_RING_GRPC_PORT for --grpc-port.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hilbert_ring::server {

inline constexpr char kVariablePrefix[] = "HILBERT_RING_";

// flag: without dashes before it.
std::string VariableOf(const std::string& flag);

struct EnvironmentSettings {
  std::map<std::string, std::string> arguments;  // "--grpc-port": "8001"
  std::vector<std::string> warnings;
};

// The settings of variables whose flags the command line does not give; an empty variable is none.
// Kubernetes names a Service's address in variables of its own, tcp://10.0.0.1:8001 in
// HILBERT_RING_PORT for a Service hilbert-ring: such a port is passed over, with a warning.
EnvironmentSettings ReadEnvironment(const std::vector<std::string>& flags, int argc,
                                    const char* const* argv);

// The message with the variable behind the first mention of each flag whose value it gave:
// "--grpc-port (HILBERT_RING_GRPC_PORT): ...".
std::string WithVariables(std::string message, const EnvironmentSettings& environment);

// Warnings of variables that no program of the service reads, which a slip has made or an older
// version left. known: names of variables. Those of a Service that Kubernetes names are left out.
std::vector<std::string> UnknownVariables(const std::vector<std::string>& known);

}  // namespace hilbert_ring::server
