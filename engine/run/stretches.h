// In which order a rank computes its local segments, so that it may begin before all rows are there
// and rows may leave before all are computed.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace hilbert_ring {

// A local segment is computed in the stretch with begin < the segment's end <= end, by slots of one
// range of the rank.
struct Stretch {
  int64_t begin = 0, end = 0;
  int64_t rows_needed = 0;  // local rows [0, rows_needed) hold everything it reads
  int64_t rows_final = 0;   // local rows [0, rows_final) are final after it
};

// Stretches of a rank, in the order of its rows. Where the rank exchanges blocks, there is one for
// each range, and no row is final before the exchange's end (rows_final is 0). least_rows: of a
// stretch, but for the last of a range.
std::vector<Stretch> MakeStretches(const Plan& plan, int rank, bool exchanges_blocks,
                                   int64_t least_rows);

// The segments of a run that belong to a stretch; count 0 where none do.
LocalSegments InStretch(const LocalSegments& run, const Stretch& stretch);

}  // namespace hilbert_ring
