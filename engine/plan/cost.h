// What a plan costs: flops, bytes moved, bytes resident.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/saturating.h"
#include "engine/plan/cancellation.h"
#include "engine/plan/exchange.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct WorkerCost {
  int64_t tokens = 0;
  double flops = 0;  // 2 (head_dim + value_dim) for each unmasked (query, key, head)
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t shard_bytes = 0;  // Q, K, V, out, lse
  // Of rows that are merged: float32 out where the job is 16-bit, and the softmax's sums of every
  // row [tokens, heads] on a worker that merges any.
  int64_t accumulator_bytes = 0;
  int64_t exchange_buffer_bytes = 0;
  int64_t order_bytes = 0;
  // Of an encoder in bfloat16: more, on a worker without products of it, which takes its numbers in
  // float32. Not in the sum.
  int64_t widened_bytes = 0;
  int64_t resident_bytes() const {
    return SaturatingAdd(SaturatingAdd(shard_bytes, accumulator_bytes),
                         SaturatingAdd(exchange_buffer_bytes, order_bytes));
  }
};

struct BranchCost {
  int64_t segments_local = 0;
  int64_t segments_exchanged = 0;
  int64_t bytes_exchanged = 0;
};

// What one worker sends another in one step of the exchange, all blocks together.
struct StepTransfer {
  int64_t step = 0;  // from 1
  int from = 0, to = 0;
  int64_t bytes = 0;
};

// Transfers are listed for so many workers at most: a list is for reading, and the square of the
// workers long.
inline constexpr int kMostWorkersWithTransfers = 16;

struct Costs {
  std::vector<WorkerCost> workers;
  std::vector<BranchCost> branches;
  int64_t steps = 0;  // exchange steps of the job
  double flops = 0;
  double busiest_over_mean = 1;         // of the workers' flops
  int64_t bytes_exchanged = 0;          // received by all workers
  int64_t bytes_exchanged_naive = 0;    // every rank receives all others' keys and values
  std::vector<StepTransfer> transfers;  // by step, from, to; see kMostWorkersWithTransfers
};

// Counts widened_bytes into what each worker takes: none has products of bfloat16.
void CountWidened(Costs& costs);

// With an ordering and causal, flops count all pairs of a segment: which are masked depends on the
// order, and the run reports what it computed. Of no use where it was cancelled.
Costs CostOf(const JobSpec& spec, const Shards& shards, const std::vector<Phase>& phases,
             const Segments& segments, Cancellation& cancellation);

// Float32 accumulators of a rank: the whole shard, or the pieces of spanning segments alone.
bool AccumulatesWholeShard(const JobSpec& spec);

}  // namespace hilbert_ring
