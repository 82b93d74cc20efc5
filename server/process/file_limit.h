// How many descriptors this process may have.
#pragma once

namespace hilbert_ring::server {

// As many as the system allows: a shell allows fewer than there may be connections, and gRPC stops
// listening for good when there is none left for the next one.
void RaiseFileLimit();

}  // namespace hilbert_ring::server
