#include "engine/model/files/encode_job.h"

#include <algorithm>

#include "engine/base/saturating.h"
#include "engine/model/files/map_transfers.h"

namespace hilbert_ring {
namespace {

// Products of fewer rows take as long as reading the weights: 1 to 10 tiles of the published size
// take 17 to 30 ms on two threads of an AMD EPYC (Zen 4), and 100 tiles 120 ms.
constexpr int64_t kRowsOfWeights = 16;

void AddMap(const EncoderPlan& plan, Costs& costs) {
  const int64_t bytes = MapRowBytes(plan);
  for (const MapTransfer& transfer : MapTransfers(plan)) {
    for (int64_t* const sum :
         {&costs.workers[transfer.from].bytes_sent, &costs.workers[transfer.to].bytes_received,
          &costs.bytes_exchanged}) {
      *sum = SaturatingAdd(*sum, bytes);
    }
  }
}

}  // namespace

RowSizes RowSizesOf(const EncodeJob& job) {
  RowSizes rows;
  rows.Set(TensorKind::kTiles, job.config.tile_dim() * ElementBytes(job.dtype));
  if (job.config.position) rows.Set(TensorKind::kTileCoords, 2 * sizeof(double));
  if (job.outputs.pooling == Pooling::kNone) {
    rows.Set(TensorKind::kStates, std::ssize(job.outputs.states) * job.config.embed_dim *
                                      static_cast<int64_t>(sizeof(float)));
  }
  if (const int64_t columns = MapColumnsOf(job.config, job.outputs); columns > 0) {
    rows.Set(TensorKind::kAttentionMap, columns * static_cast<int64_t>(sizeof(float)));
  }
  return rows;
}

Plan PlanOfJob(const EncodeJob& job, const EncoderPlan& plan, int threads) {
  Plan whole = plan.attention;
  whole.rows = RowSizesOf(job);
  int64_t row_bytes = 0;
  for (int i = 0; i < kTensorKinds; ++i) row_bytes += whole.rows[static_cast<TensorKind>(i)];
  const int64_t layers = job.config.layers;
  Costs& costs = whole.costs;
  double busiest = 0;
  costs.flops = 0;
  for (int rank = 0; rank < whole.shards.workers(); ++rank) {
    WorkerCost& cost = costs.workers[rank];
    const EncoderMemory memory = MemoryOf(plan, rank, threads, job.compute, job.outputs);
    const EncoderMemory widened = MemoryOf(plan, rank, threads, DataType::kFloat32, job.outputs);
    cost.accumulator_bytes = SaturatingAdd(cost.accumulator_bytes,
                                           SaturatingAdd(memory.total(), -memory.attention_bytes));
    cost.widened_bytes = widened.total() - memory.total();
    cost.shard_bytes =
        SaturatingAdd(cost.shard_bytes, SaturatingMultiply(whole.shards.Rows(rank), row_bytes));
    const double products = ProductFlops(plan, rank);
    const int64_t rows = whole.shards.Rows(rank);
    cost.flops = static_cast<double>(layers) * cost.flops + products;
    if (rows > 0 && rows < kRowsOfWeights) {
      cost.weight_flops =
          products * static_cast<double>(kRowsOfWeights - rows) / static_cast<double>(rows);
    }
    cost.bytes_sent = SaturatingMultiply(cost.bytes_sent, layers);
    cost.bytes_received = SaturatingMultiply(cost.bytes_received, layers);
    costs.flops += cost.flops;
    busiest = std::max(busiest, cost.flops);
  }
  for (BranchCost& branch : costs.branches) {
    branch.bytes_exchanged = SaturatingMultiply(branch.bytes_exchanged, layers);
  }
  if (costs.flops > 0) costs.busiest_over_mean = busiest * whole.shards.workers() / costs.flops;
  costs.steps = StepsOf(plan);
  costs.bytes_exchanged = SaturatingMultiply(costs.bytes_exchanged, layers);
  costs.bytes_exchanged_naive = SaturatingMultiply(costs.bytes_exchanged_naive, layers);
  if (job.outputs.attention_map) AddMap(plan, costs);
  costs.transfers.clear();  // they describe one layer
  return whole;
}

}  // namespace hilbert_ring
