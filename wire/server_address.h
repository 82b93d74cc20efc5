// Addresses that people give.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hilbert_ring::wire {

// OK for "host:port", "[IPv6]:port" and names of gRPC's own kinds ("dns:///host:port",
// "unix:/path"); else INVALID_ARGUMENT, naming the flag and what is wrong: gRPC would take https's
// port where there is none, the port modulo 65,536, and look up a host "http" where there is a URL.
// The Python client has the same rules (_server_address.py). Tests of both read the cases of
// tests/unit/wire/server_addresses.json.
absl::Status CheckServerAddress(std::string_view flag, const std::string& address);

// Of a name that a certificate must have, empty or of 253 characters at most; else
// INVALID_ARGUMENT. gRPC 1.51 ends the process over a name of thousands.
absl::Status CheckServerName(std::string_view flag, const std::string& name);

}  // namespace hilbert_ring::wire
