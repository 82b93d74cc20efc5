// Checks addresses that users give.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hilbert_ring::wire {

// Accepts "host:port", "[IPv6]:port" and names of gRPC's own kinds ("dns:///host:port",
// "unix:/path"). INVALID_ARGUMENT otherwise, with the flag and the fault.
//
// gRPC would accept other addresses and connect elsewhere. It takes a port modulo 65,536, and a
// missing port as https's. It looks up the host "http" of a URL.
//
// The Python client has the same rules (_server_address.py). Tests of both read
// tests/unit/wire/server_addresses.json.
absl::Status CheckServerAddress(std::string_view flag, const std::string& address);

// Accepts the name required of a certificate, empty or of at most 253 characters. INVALID_ARGUMENT
// otherwise: gRPC 1.51 ends the process over a name of thousands.
absl::Status CheckServerName(std::string_view flag, const std::string& name);

}  // namespace hilbert_ring::wire
