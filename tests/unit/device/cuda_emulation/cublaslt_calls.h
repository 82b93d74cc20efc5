// What tests ask of the emulated cuBLASLt, and tell it.
#pragma once

#include <cstdint>
#include <string>

namespace hilbert_ring::emulation {

struct LtCalls {
  int64_t heuristics = 0;  // algorithms that were asked for
  int64_t products = 0;
  int64_t alive = 0;  // handles, descriptors, layouts, preferences
};

LtCalls CountedLtCalls();

// From here on the function of this name fails, after so many calls that do not; empty: none does.
void FailLt(const std::string& function, int64_t after = 0);

}  // namespace hilbert_ring::emulation
