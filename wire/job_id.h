// Ids of jobs without a name.
#pragma once

#include <string>

namespace hilbert_ring::wire {

// Returns "job-" and 64 random bits in hexadecimal.
std::string DrawJobId();

}  // namespace hilbert_ring::wire
