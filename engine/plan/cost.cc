#include "engine/plan/cost.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "engine/base/saturating.h"
#include "engine/plan/step_bytes.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// Flops in the time of an exchanged byte: about 100 GFLOP/s at 1 GB/s on CPU workers, 500 TFLOP/s
// at 5 to 400 GB/s on GPU workers.
constexpr double kFlopsPerByte = 100;

double FlopsPerPair(const JobSpec& spec) {
  return 2.0 * static_cast<double>(spec.head_dim + spec.value_dim);
}

void AddLocal(const JobSpec& spec, const std::vector<Phase>& phases, const Segments& segments,
              Costs& costs, Cancellation& cancellation) {
  const Reach reach = ReachOf(spec);
  for (const LocalSegments& run : segments.local) {
    if (cancellation.Step()) return;
    costs.branches[run.branch].segments_local += run.count;
    costs.workers[run.rank].list_bytes += static_cast<int64_t>(sizeof(LocalSegments));
    const PhaseRange of_branch = PhasesOf(phases, run.branch);
    for (size_t p = of_branch.begin; p < of_branch.end; ++p) {
      const Phase& phase = phases[p];
      const Progression rows = Selected(run.begin, phase.offset, spec.branches[run.branch].dilation,
                                        run.begin, run.begin + run.length);
      costs.workers[run.rank].flops += FlopsPerPair(spec) * static_cast<double>(phase.heads()) *
                                       static_cast<double>(run.count) * Pairs(rows, rows, reach);
    }
  }
}

using Transfers = std::map<std::tuple<int64_t, int, int>, int64_t>;  // (step, from, to): bytes

void AddTransfers(const Block& block, const std::vector<int>& route, int64_t bytes,
                  Transfers& transfers) {
  int from = block.rank;
  for (size_t hop = 0; hop < route.size(); ++hop) {
    int64_t& sum = transfers[{static_cast<int64_t>(hop) + 1, from, route[hop]}];
    sum = SaturatingAdd(sum, bytes);
    from = route[hop];
  }
}

void AddExchange(const JobSpec& spec, const SpanningSegment& segment, const Phase& phase,
                 StepBytes& step_bytes, std::vector<bool>& merges, Transfers& transfers,
                 Costs& costs) {
  const PhaseExchange exchange(spec, segment, phase);
  const Reach reach = ReachOf(spec);
  const Progression all =
      Selected(segment.begin, phase.offset, spec.branches[phase.branch].dilation, segment.begin,
               segment.end);
  const int64_t row_bytes = BlockRowBytes(spec, phase);
  for (const Block& block : exchange.blocks()) {
    WorkerCost& owner = costs.workers[block.rank];
    merges[block.rank] = true;
    owner.flops +=
        FlopsPerPair(spec) * static_cast<double>(phase.heads()) * Pairs(block.rows, all, reach);
    if (!AccumulatesWholeShard(spec) && spec.dtype != DataType::kFloat32) {
      owner.accumulator_bytes = SaturatingAdd(
          owner.accumulator_bytes,
          SaturatingMultiply(block.rows.count, phase.heads() * spec.value_dim * kFloatBytes));
    }
    const std::vector<int> route = exchange.Route(block);
    if (route.empty()) continue;
    const int64_t bytes = SaturatingMultiply(block.rows.count, row_bytes);
    owner.bytes_sent = SaturatingAdd(owner.bytes_sent, bytes);
    step_bytes.Add(block.rank, 0, bytes);
    if (costs.workers.size() <= kMostWorkersWithTransfers) {
      AddTransfers(block, route, bytes, transfers);
    }
    for (size_t hop = 0; hop < route.size(); ++hop) {
      WorkerCost& receiver = costs.workers[route[hop]];
      receiver.bytes_received = SaturatingAdd(receiver.bytes_received, bytes);
      if (hop + 1 < route.size()) receiver.bytes_sent = SaturatingAdd(receiver.bytes_sent, bytes);
      step_bytes.Add(route[hop], static_cast<int64_t>(hop) + 1, bytes);
    }
    costs.steps = std::max(costs.steps, static_cast<int64_t>(route.size()));
    BranchCost& branch = costs.branches[phase.branch];
    branch.bytes_exchanged = SaturatingAdd(
        branch.bytes_exchanged, SaturatingMultiply(bytes, static_cast<int64_t>(route.size())));
  }
}

}  // namespace

double BusiestFinish(const Costs& costs) {
  double latest = 0;
  for (const WorkerCost& worker : costs.workers) {
    latest = std::max(
        latest, worker.flops + kFlopsPerByte * static_cast<double>(std::max(worker.bytes_received,
                                                                            worker.bytes_sent)));
  }
  return latest;
}

bool AccumulatesWholeShard(const JobSpec& spec) {
  return MixesBranches(spec) || AddsZeroKeys(spec) || !spec.sinks.empty();
}

int64_t HeadNumberBytes(const JobSpec& spec) {
  const size_t slopes = spec.alibi ? spec.alibi->slopes.size() : 0;
  return static_cast<int64_t>(slopes + spec.sinks.size()) * kFloatBytes;
}

void StepBytes::Add(int rank, int64_t step, int64_t bytes) {
  std::vector<int64_t>& steps = bytes_[rank];
  if (static_cast<int64_t>(steps.size()) <= step) steps.resize(step + 1, 0);
  steps[step] = SaturatingAdd(steps[step], BlockStride(bytes));
}

int64_t StepBytes::ArenaBytes(int rank) const {
  const std::vector<int64_t>& steps = bytes_[rank];
  int64_t most = steps.size() == 1 ? steps[0] : 0;
  for (size_t i = 1; i < steps.size(); ++i)
    most = std::max(most, SaturatingAdd(steps[i - 1], steps[i]));
  return most;
}

Costs CostOf(const JobSpec& spec, const Shards& shards, const std::vector<Phase>& phases,
             const Segments& segments, Cancellation& cancellation) {
  Costs costs;
  costs.workers.resize(shards.workers());
  costs.branches.resize(spec.branches.size());
  const int64_t element = ElementBytes(spec.dtype);
  const int64_t kv_row = spec.kv_heads * (spec.head_dim + spec.value_dim) * element;
  const int64_t q_row = spec.heads * (spec.head_dim + spec.value_dim) * element;  // Q and out
  const int64_t lse_row = spec.heads * kFloatBytes;
  const int64_t coordinates =
      RowBytes(spec, TensorKind::kBiasCoords) * (HasQueryCoordinates(spec) ? 2 : 1);
  for (int rank = 0; rank < shards.workers(); ++rank) {
    WorkerCost& worker = costs.workers[rank];
    worker.tokens = shards.Rows(rank);
    worker.shard_bytes = SaturatingMultiply(worker.tokens, q_row + kv_row + lse_row + coordinates);
    if (AccumulatesWholeShard(spec) && spec.dtype != DataType::kFloat32) {
      worker.accumulator_bytes =
          SaturatingMultiply(worker.tokens, spec.heads * spec.value_dim * kFloatBytes);
    }
    if (spec.ordering) worker.order_bytes = worker.tokens * static_cast<int64_t>(sizeof(int64_t));
    if (NeedsPositions(spec) && spec.ordering->scope == OrderScope::kKv) {
      worker.order_bytes += worker.tokens * static_cast<int64_t>(sizeof(int64_t));
    }
  }
  AddLocal(spec, phases, segments, costs, cancellation);
  StepBytes step_bytes(shards.workers());
  Transfers transfers;
  std::vector<bool> merges(shards.workers(), AccumulatesWholeShard(spec));
  for (const SpanningSegment& segment : segments.spanning) {
    const int64_t before = costs.branches[segment.branch].bytes_exchanged;
    const PhaseRange of_branch = PhasesOf(phases, segment.branch);
    for (size_t p = of_branch.begin; p < of_branch.end && !cancellation.Ask(); ++p) {
      AddExchange(spec, segment, phases[p], step_bytes, merges, transfers, costs);
    }
    BranchCost& branch = costs.branches[segment.branch];
    ++(branch.bytes_exchanged > before ? branch.segments_exchanged : branch.segments_local);
  }
  for (const auto& [key, bytes] : transfers) {
    const auto& [step, from, to] = key;
    costs.transfers.push_back({.step = step, .from = from, .to = to, .bytes = bytes});
  }
  double busiest = 0;
  for (int rank = 0; rank < shards.workers(); ++rank) {
    WorkerCost& worker = costs.workers[rank];
    worker.exchange_buffer_bytes = step_bytes.ArenaBytes(rank);
    if (merges[rank]) {  // softmax sums; lse has the maxima
      worker.accumulator_bytes =
          SaturatingAdd(worker.accumulator_bytes, SaturatingMultiply(worker.tokens, lse_row));
    }
    worker.accumulator_bytes = SaturatingAdd(worker.accumulator_bytes, HeadNumberBytes(spec));
    costs.flops += worker.flops;
    busiest = std::max(busiest, worker.flops);
    costs.bytes_exchanged = SaturatingAdd(costs.bytes_exchanged, worker.bytes_received);
  }
  if (costs.flops > 0) costs.busiest_over_mean = busiest * shards.workers() / costs.flops;
  costs.bytes_exchanged_naive = SaturatingMultiply(
      shards.workers() - 1,
      SaturatingMultiply(spec.tokens, kv_row + RowBytes(spec, TensorKind::kBiasCoords)));
  return costs;
}

void CountWidened(Costs& costs) {
  for (WorkerCost& cost : costs.workers) {
    cost.accumulator_bytes =
        SaturatingAdd(cost.accumulator_bytes, std::exchange(cost.widened_bytes, 0));
  }
}

}  // namespace hilbert_ring
