// Keys of space-filling curves: a cell's distance along the curve through the square (cube) of
// 2^bits cells a side (tests/golden/attention_oracle.py). 2-D Hilbert is the classical xy2d, 3-D
// Hilbert is Skilling's (AIP Conf. Proc. 707, 2004), Morton interleaves bits with x lowest.
#pragma once

#include <cstdint>
#include <span>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct Cell {
  uint64_t x = 0, y = 0, z = 0;
};

// coords: [n, axes] row-major, axes 2 or 3, below 2^bits; bits: 1 to 32 in 2-D, to 21 in 3-D. keys:
// [n].
void CurveKeys(Curve curve, int axes, int bits, std::span<const int64_t> coords,
               std::span<uint64_t> keys);

}  // namespace hilbert_ring
