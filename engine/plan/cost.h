// Costs of a plan: flops, bytes moved, bytes resident.
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
  double flops = 0;         // 2 (head_dim + value_dim) for each unmasked (query, key, head)
  double weight_flops = 0;  // not in `flops`: waits for an encoder's weights, at the rate of flops
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t shard_bytes = 0;  // Q, K, V, out, lse, coordinates of a bias
  // Merged rows: float32 out in a 16-bit job, and softmax sums [tokens, heads]; then the slopes and
  // sinks of heads.
  int64_t accumulator_bytes = 0;
  int64_t exchange_buffer_bytes = 0;
  int64_t order_bytes = 0;
  int64_t list_bytes = 0;  // runs of segments; of a rectangular job, its sequences
  // An encoder's surplus without bfloat16 products; not in resident_bytes().
  int64_t widened_bytes = 0;
  int64_t resident_bytes() const {
    return SaturatingAdd(SaturatingAdd(shard_bytes, accumulator_bytes),
                         SaturatingAdd(exchange_buffer_bytes, order_bytes + list_bytes));
  }
};

struct BranchCost {
  int64_t segments_local = 0;
  int64_t segments_exchanged = 0;
  int64_t bytes_exchanged = 0;
};

// All blocks that one worker sends another in one step.
struct StepTransfer {
  int64_t step = 0;  // from 1
  int from = 0, to = 0;
  int64_t bytes = 0;
};

// More workers get no list of transfers, whose length is quadratic in them.
inline constexpr int kMostWorkersWithTransfers = 16;

struct Costs {
  std::vector<WorkerCost> workers;
  std::vector<BranchCost> branches;
  int64_t steps = 0;  // exchange steps of the job
  double flops = 0;
  double busiest_over_mean = 1;         // of the workers' flops
  int64_t bytes_exchanged = 0;          // received by all workers
  int64_t bytes_exchanged_naive = 0;    // every rank receives all others' keys and values
  std::vector<StepTransfer> transfers;  // by step, from, to; up to kMostWorkersWithTransfers
};

// The busiest worker's time in flops, exchange included.
double BusiestFinish(const Costs& costs);

// Adds widened_bytes to each worker's memory, if workers lack bfloat16 products.
void CountWidened(Costs& costs);

// A causal job with an ordering counts all pairs of a segment, because the mask depends on the
// order. The result is meaningless after a cancellation.
Costs CostOf(const JobSpec& spec, const Shards& shards, const std::vector<Phase>& phases,
             const Segments& segments, Cancellation& cancellation);

// Returns whether a rank accumulates its whole shard in float32, or only pieces of spanning
// segments.
bool AccumulatesWholeShard(const JobSpec& spec);

// Bytes of slopes and sinks on each worker.
int64_t HeadNumberBytes(const JobSpec& spec);

}  // namespace hilbert_ring
