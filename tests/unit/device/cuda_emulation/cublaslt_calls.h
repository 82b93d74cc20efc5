// Counts of the emulated cuBLASLt.
#pragma once

#include <cstdint>

namespace hilbert_ring::emulation {

struct LtCalls {
  int64_t heuristics = 0;  // choices of an algorithm
  int64_t alive = 0;       // handles, descriptors, layouts, preferences
};

LtCalls CountedLtCalls();

}  // namespace hilbert_ring::emulation
