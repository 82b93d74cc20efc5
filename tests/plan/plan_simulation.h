// Runs a small job's plan without data: the (query, key) pairs that are computed and the blocks
// that travel.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "engine/plan/rank_schedule.h"

namespace hilbert_ring::testing {

using Pair = std::tuple<int, int64_t, int64_t, int64_t>;  // branch, head, query slot, key slot

// The pairs without phases, progressions or shards. Triangular only if slots are positions, because
// kernels apply masks by position.
std::set<Pair> PairsByDefinition(const JobSpec& spec);

class PlanSimulation {
 public:
  explicit PlanSimulation(const Plan& plan);

  // INTERNAL if a pair is computed twice or not by its query's owner, if blocks overlap in the
  // arena, or if peers disagree. A block must have arrived before it is sent, and must be needed.
  absl::Status Run();

  const std::set<Pair>& pairs() const { return pairs_; }
  int64_t received(int rank) const { return received_[rank]; }  // bytes

 private:
  using BlockId = std::tuple<int, int, int64_t>;  // segment, phase, first slot

  absl::Status Compute(int rank, const Phase& phase, const Progression& queries,
                       const Progression& keys);
  absl::Status ComputeLocal(const LocalSegments& run);
  absl::Status ComputeBlock(int rank, const RankExchange& exchange, const Block& keys);
  absl::Status CheckArena(int rank) const;
  absl::Status CheckNeeded(int rank, const RankExchange& exchange, const Block& keys) const;
  absl::Status Step(int64_t step);
  BlockId IdOf(int rank, const ArenaBlock& block) const;
  // The blocks that a rank holds after a step, by offset in the arena.
  std::map<int64_t, BlockId> Held(int rank, int64_t step) const;

  const Plan& plan_;
  std::vector<RankSchedule> schedules_;
  std::set<Pair> pairs_;
  std::vector<int64_t> received_;
};

}  // namespace hilbert_ring::testing
