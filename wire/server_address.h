// Addresses that people give.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hilbert_ring::wire {

// OK for "host:port", "[IPv6]:port" and names of gRPC's own kinds ("dns:///host:port",
// "unix:/path"); else INVALID_ARGUMENT, naming the flag and what is wrong: gRPC would take https's
// port where there is none, and look up a host "http" where there is a URL.
absl::Status CheckServerAddress(std::string_view flag, const std::string& address);

}  // namespace hilbert_ring::wire
