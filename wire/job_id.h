// The ids of jobs that nobody named.
#pragma once

#include <string>

namespace hilbert_ring::wire {

// "job-" and 64 random bits in hexadecimal.
std::string DrawJobId();

}  // namespace hilbert_ring::wire
