// In which order a rank computes its local segments, so that it may begin before all rows are there
// and rows may leave before all are computed.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace hilbert_ring {

// Slots (begin, end] of one range of the rank: a local segment is computed in the window that its
// last slot lies in.
struct Window {
  int64_t begin = 0, end = 0;
  int64_t rows_needed = 0;  // local rows [0, rows_needed) hold everything it reads
  int64_t rows_final = 0;   // local rows [0, rows_final) are final after it
};

// Windows of a rank, in the order of its rows. Where the rank takes part in a ring, there is one
// for each range, and no row is final before the ring's end (rows_final is 0). least_rows: of a
// window, but for the last of a range.
std::vector<Window> MakeWindows(const Plan& plan, int rank, bool in_ring, int64_t least_rows);

// The segments of a run that belong to a window; count 0 where none do.
LocalSegments InWindow(const LocalSegments& run, const Window& window);

}  // namespace hilbert_ring
