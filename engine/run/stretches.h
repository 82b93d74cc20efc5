// The order of a rank's local segments. A rank begins before all rows have come, and rows leave
// early.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace hilbert_ring {

// A stretch computes the local segments whose ends lie in (begin, end], in slots of one range.
struct Stretch {
  int64_t begin = 0, end = 0;
  int64_t rows_needed = 0;  // local rows [0, rows_needed) are all that it reads
  int64_t rows_final = 0;   // local rows [0, rows_final) are final after it
};

// In row order, each of least_rows or more except the last of a range. A rank that exchanges blocks
// has one for each range, and no final rows before the exchange's end.
std::vector<Stretch> MakeStretches(const Plan& plan, int rank, bool exchanges_blocks,
                                   int64_t least_rows);

// A task of a kv head has some hundred bytes: more of them at once would weigh beside their rows.
inline constexpr int64_t kMostTasks = 4096;

// The stretch in parts of about kMostTasks or less, because each run of segments has its own tasks.
std::vector<Stretch> PartsOf(const Plan& plan, const Stretch& stretch);

LocalSegments InStretch(const LocalSegments& run, const Stretch& stretch);

}  // namespace hilbert_ring
