// The limit of this process's descriptors.
#pragma once

namespace hilbert_ring::server {

// Raises it to the system's limit: a shell's limit is below the number of connections.
void RaiseFileLimit();

}  // namespace hilbert_ring::server
