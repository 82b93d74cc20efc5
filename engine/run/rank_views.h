// Views of one rank's rows, accumulators and arena, which attention tasks are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/attention.h"
#include "engine/plan/plan.h"
#include "engine/plan/rank_schedule.h"
#include "engine/run/shard_store.h"

namespace hilbert_ring {

// Evenly spaced rows of this rank, `batch` times `batch_slots` apart.
struct LocalRows {
  int64_t batch = 1;
  int64_t batch_slots = 0;
  Progression rows;  // slots of the first batch, all within one range of the rank
};

// Float32 out and softmax state that partial results are merged into.
struct Accumulator {
  MutableView out;
  StateView state;
};

struct AccumulatorMemory {
  float* sums = nullptr;  // [rows, heads]; maxima lie in lse
  float* out = nullptr;   // [rows, heads, value_dim] of 16-bit jobs that accumulate the whole shard
  const float* slopes = nullptr;  // [heads], of the spec; null: none
  const float* sinks = nullptr;
};

class RankViews {
 public:
  // Buffers outlive the views. query_slots: [rows], if queries' positions are slots.
  RankViews(const Plan& plan, ShardStore& store, const AccumulatorMemory& accumulators,
            const int64_t* query_slots);

  // Heads begin at `head` in every view.
  ConstView Rows(TensorKind tensor, const LocalRows& rows, int64_t head) const;
  MutableView Out(const LocalRows& rows, int64_t head) const;
  LseView Lse(const LocalRows& rows, int64_t head) const;
  StateView State(const LocalRows& rows, int64_t head) const;

  // The accumulator of rows: out of a float32 job, or the whole accumulator of a 16-bit job.
  Accumulator WholeAccumulator(const LocalRows& rows, int64_t head) const;

  // The accumulator of a piece: a dense float32 block [rows, heads of the phase, value_dim].
  Accumulator PieceAccumulator(const LocalRows& rows, float* block, const Phase& phase,
                               int64_t head) const;

  // Numbers from `head` on; null: the job has no such numbers.
  const float* Slopes(int64_t head) const;
  const float* Sinks(int64_t head) const;

  PositionsView QueryPositions(const LocalRows& rows) const;
  PositionsView KeyPositions(const LocalRows& rows) const;

  // Null data without coordinates.
  CoordinatesView QueryCoordinates(const LocalRows& rows) const;
  CoordinatesView KeyCoordinates(const LocalRows& rows) const;

  int64_t LocalRow(int64_t slot) const { return plan_.shards.Find(slot).LocalRow(slot); }

 private:
  PositionsView Positions(const int64_t* data, const LocalRows& rows) const;
  CoordinatesView Coordinates(int64_t first, const LocalRows& rows) const;

  const Plan& plan_;
  ShardStore& store_;
  AccumulatorMemory accumulators_;
  const int64_t* query_slots_;
};

}  // namespace hilbert_ring
