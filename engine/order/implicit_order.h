// The order of a square or grid, evaluated by descent and never stored. A cell's slot is the number
// of existing cells in the quadrants before it on the curve. A range of slots is a walk through the
// quadrants in curve order. (In 3-D: cubes and octants.)
#pragma once

#include <memory>

#include "engine/order/cell_region.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// region.size() >= 1.
std::unique_ptr<const Permutation> MakeImplicitOrder(Curve curve, const CellRegion& region);

}  // namespace hilbert_ring
