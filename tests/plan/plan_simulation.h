// A plan run without data: which (query, key) pairs are computed, and which blocks travel. Checks
// what a run relies on; for small jobs.
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

// Straight from the definition, without phases, progressions or shards. Triangles only where slots
// are positions; a mask by positions is the kernel's.
std::set<Pair> PairsByDefinition(const JobSpec& spec);

class PlanSimulation {
 public:
  // The plan must outlive it.
  explicit PlanSimulation(const Plan& plan);

  // INTERNAL, saying what is wrong: a pair that is computed twice or by a rank that does not own
  // its query, blocks that overlap in the arena, a block that is sent but not there, peers that do
  // not agree, a block that nobody needs.
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
  // What a rank holds at an offset of the arena after a step.
  std::map<int64_t, BlockId> Held(int rank, int64_t step) const;

  const Plan& plan_;
  std::vector<RankSchedule> schedules_;
  std::set<Pair> pairs_;
  std::vector<int64_t> received_;
};

}  // namespace hilbert_ring::testing
