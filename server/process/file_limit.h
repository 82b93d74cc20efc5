// Raises the limit of descriptors to the system's: a shell's is below the number of connections.
#pragma once

namespace hilbert_ring::server {

void RaiseFileLimit();

}  // namespace hilbert_ring::server
