// Keys of space-filling curves, as tests/golden/attention_oracle.py defines them.
//
// A key is the distance of a cell along the curve through the enclosing square (cube) of
// 2^bits cells a side. 2-D Hilbert is the classical curve (xy2d), 3-D Hilbert is Skilling's
// (AIP Conf. Proc. 707, 2004), Morton interleaves bits with x lowest. Table driven: a state machine
// over one bit of every axis a step, whose tables are built once from the bitwise definitions.
#pragma once

#include <cstdint>
#include <span>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct Cell {
  uint64_t x = 0, y = 0, z = 0;
};

// Keys of many cells: coords is [n, axes] row-major, axes 2 or 3; keys has n places. Coordinates
// are below 2^bits, bits from 1 to 32 in two dimensions and to 21 in three.
void CurveKeys(Curve curve, int axes, int bits, std::span<const int64_t> coords,
               std::span<uint64_t> keys);

}  // namespace hilbert_ring
