// The order of a square or grid, evaluated by descent and never stored.
//
// The enclosing square is divided into quadrants, those again, down to one cell. The slot of a cell
// is the number of existing cells in the quadrants that the curve passes before it; a range of
// slots is the walk through the quadrants in the order of the curve, past those that lie before the
// range or hold nothing. (In 3-D read cubes and octants.)
#pragma once

#include <memory>

#include "engine/order/cell_region.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// region.size() >= 1.
std::unique_ptr<const Permutation> MakeImplicitOrder(Curve curve, const CellRegion& region);

}  // namespace hilbert_ring
