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

// x, y < 2^bits, 1 <= bits <= 32.
uint64_t CurveKey2d(Curve curve, uint64_t x, uint64_t y, int bits);

// x, y, z < 2^bits, 1 <= bits <= 21.
uint64_t CurveKey3d(Curve curve, uint64_t x, uint64_t y, uint64_t z, int bits);

// Inverses.
struct Cell {
  uint64_t x = 0, y = 0, z = 0;
  bool operator==(const Cell&) const = default;
};
Cell CurveCell2d(Curve curve, uint64_t key, int bits);
Cell CurveCell3d(Curve curve, uint64_t key, int bits);

// Keys of many cells: coords is [n, axes] row-major, axes 2 or 3; keys has n places.
void CurveKeys(Curve curve, int axes, int bits, std::span<const int64_t> coords,
               std::span<uint64_t> keys);

}  // namespace hilbert_ring
