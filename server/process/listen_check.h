// Why a server cannot listen, in words: gRPC and the HTTP server say only that they cannot.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// OK where host and port can be listened on now. UNAVAILABLE, naming `what` ("grpc"), host and
// port: another process has the port, the host is no address of this machine, or the user may not.
absl::Status CheckCanListen(const std::string& what, const std::string& host, int port);

}  // namespace hilbert_ring::server
