// The transfers of one rank in each step, derived from the plan. All ranks walk exchanges, phases
// and blocks alike, so two ranks list the transfers between them in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/plan.h"

namespace hilbert_ring {

// A phase of a spanning segment in which the rank holds rows.
struct RankExchange {
  int segment = 0;    // index into plan.segments.spanning
  int phase = 0;      // index into plan.phases
  PhaseExchange all;  // with all its ranks
};

struct ArenaBlock {
  int exchange = 0;    // index into RankSchedule::exchanges
  int block = 0;       // index into its blocks()
  int64_t offset = 0;  // bytes
  int64_t bytes = 0;
};

struct BlockTransfer {
  int peer = 0;
  int64_t offset = 0;  // in the arena
  int64_t bytes = 0;
};

struct ScheduleStep {
  std::vector<BlockTransfer> sends;  // of packed blocks, or those of the step before
  std::vector<BlockTransfer> receives;
  std::vector<ArenaBlock> arrived;  // in the order of `receives`
};

struct RankSchedule {
  std::vector<RankExchange> exchanges;
  std::vector<ArenaBlock> packed;   // own blocks that other ranks need, packed before step 1
  std::vector<ScheduleStep> steps;  // steps[t - 1] is step t, t from 1
  int64_t arena_bytes = 0;          // equals WorkerCost::exchange_buffer_bytes
};

RankSchedule MakeRankSchedule(const Plan& plan, int rank);

}  // namespace hilbert_ring
