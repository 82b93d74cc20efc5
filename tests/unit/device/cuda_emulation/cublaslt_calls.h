// Counts calls and objects of the emulated cuBLASLt. Tests read the counts.
#pragma once

#include <cstdint>

namespace hilbert_ring::emulation {

struct LtCalls {
  int64_t heuristics = 0;  // calls that choose an algorithm
  int64_t alive = 0;       // objects that are not destroyed
};

LtCalls CountedLtCalls();

}  // namespace hilbert_ring::emulation
