// How many connections came in by a port and are open, as the system knows them: the servers'
// libraries keep no count, and close connections without a word.
#pragma once

#include <map>

namespace hilbert_ring::server {

// Of this process, TCP alone, by its own port. Looks at all descriptors, a few microseconds each.
std::map<int, int> ConnectionsByPort();

}  // namespace hilbert_ring::server
