// Finds listening processes in /proc.
#pragma once

#include <sys/types.h>

namespace hilbert_ring::server {

// Whether the process has a TCP socket that listens at the port. False if /proc cannot be read.
bool ListensAt(pid_t pid, int port);

}  // namespace hilbert_ring::server
