// The end of connections that nobody will serve any more.
#pragma once

#include <string>

namespace hilbert_ring::server {

// Ends this process's connections to whom listens at an address, "10.0.0.7:8101". Returns how many;
// none where the host is no number.
//
// gRPC ends a cancelled call only once what is being written to its connection has left. To a host
// that takes nothing and answers nothing, that is when the kernel gives the connection up
// (TCP_USER_TIMEOUT, Dial), which begins to count when the host's window is found full. A peer that
// is given up before that is left by this.
int ShutConnectionsTo(const std::string& address);

}  // namespace hilbert_ring::server
