// Runs one rank's part of a rectangular job (engine/plan/rectangle.h): own queries against own
// keys, then the rounds in which queries and partial results travel, or keys and values.
#pragma once

#include "absl/status/status.h"
#include "engine/run/rank_run.h"

namespace hilbert_ring {

absl::Status RunRectangle(RankRun& run);

}  // namespace hilbert_ring
