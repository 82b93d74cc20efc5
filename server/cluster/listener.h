// Whether a process listens at a port, from /proc.
#pragma once

#include <sys/types.h>

namespace hilbert_ring::server {

// Returns false if /proc cannot be read.
bool ListensAt(pid_t pid, int port);

}  // namespace hilbert_ring::server
