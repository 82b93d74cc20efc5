// Attention tasks of one rank. Tasks of a round write different elements and go to the device in
// one call. The order of rounds, and so of merges, is fixed.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/device/attention.h"
#include "engine/plan/rank_schedule.h"
#include "engine/run/rank_views.h"
#include "engine/run/stretches.h"

namespace hilbert_ring {

using Rounds = std::vector<std::vector<AttentionTask>>;

// The factor of a job's outputs, and AttentionTask::StateScale() of its tasks.
float OutScale(const JobSpec& spec);
float StateScale(const JobSpec& spec);

// A task of some query heads of one kv head, without rows: sizes, scale, change of scores and band.
// slopes: [all heads] on the device; null: none.
AttentionTask UnitTask(const JobSpec& spec, const HeadRange& heads, const float* slopes);

// Keys and values of a block, in the shard or the arena.
struct KeyBlock {
  Progression rows;
  ConstView k, v;  // from the phase's first kv head on
  PositionsView positions;
  CoordinatesView coordinates;
};

class TaskBuilder {
 public:
  // piece_accumulators: [exchange][block], of 16-bit jobs that accumulate only pieces. Arguments
  // outlive the builder.
  TaskBuilder(const Plan& plan, int rank, const RankSchedule& schedule, const RankViews& views,
              const std::vector<std::vector<float*>>& piece_accumulators);

  // Segments of the stretch that lie within the rank.
  Rounds Local(const Stretch& stretch) const;

  // Own queries of spanning segments against own keys.
  Rounds Own() const;

  // Own queries against arrived blocks, whose offsets are in `arena`.
  Rounds Arrived(const std::vector<ArenaBlock>& blocks, const std::byte* arena) const;

  // Zero keys of the tail, once for each local segment of the stretch, or spanning segment. By
  // branch, because branches share rows.
  using ZeroKeys = std::vector<std::vector<MergeTask>>;
  ZeroKeys LocalZeroKeys(const Stretch& stretch) const;
  ZeroKeys SpanningZeroKeys() const;

  // Convert accumulators to out and lse: of local rows [begin, end), or of pieces with their own.
  std::vector<FinalizeTask> FinalizeRows(int64_t begin, int64_t end) const;
  std::vector<FinalizeTask> FinalizePieces() const;

 private:
  template <typename Visit>
  void ForEachLocal(const Stretch& stretch, const Visit& visit) const;
  void AddZeroKeys(const LocalRows& rows, const Phase& phase, int64_t zeros, ZeroKeys& tasks) const;
  FinalizeTask FinalizeOf(const LocalRows& rows, const Accumulator& from, int64_t head,
                          int64_t heads) const;
  bool OutNeedsFinalizing() const;
  Accumulator AccumulatorOf(const LocalRows& rows, int exchange, int block, int64_t head) const;
  KeyBlock OwnKeys(const RankExchange& exchange, const Block& block) const;
  KeyBlock ArenaKeys(const ArenaBlock& arrived, const std::byte* arena) const;
  AttentionTask TaskShape(const LocalRows& queries, const KeyBlock& keys, const Phase& phase,
                          int64_t kv_head) const;
  // Adds the tasks of `keys` with every own block of an exchange that sees one of them.
  void AddKeys(int exchange, const KeyBlock& keys, Rounds& rounds,
               std::vector<std::vector<size_t>>& used) const;

  const Plan& plan_;
  const int rank_;
  const RankSchedule& schedule_;
  const RankViews& views_;
  const std::vector<std::vector<float*>>& piece_accumulators_;
};

}  // namespace hilbert_ring
