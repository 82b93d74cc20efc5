// How many descriptors this process may have.
#pragma once

namespace hilbert_ring::server {

// As many as the system allows: a shell allows fewer than there may be connections.
void RaiseFileLimit();

}  // namespace hilbert_ring::server
