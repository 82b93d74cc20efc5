// Which process listens at a port, by the kernel's account.
#pragma once

#include <sys/types.h>

namespace hilbert_ring::server {

// Whether the process has a TCP socket that listens at the port. False as well where /proc does not
// tell.
bool ListensAt(pid_t pid, int port);

}  // namespace hilbert_ring::server
