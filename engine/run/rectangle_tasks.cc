#include "engine/run/rectangle_tasks.h"

#include <algorithm>

namespace hilbert_ring {
namespace {

// The queries of a block in a phase, evenly spaced, in one or several equal segments.
struct Asking {
  int64_t batch = 1;
  int64_t batch_rows = 0;
  Progression rows;  // numbers of the queries
};

// The keys that they meet, in the same segments.
struct Met {
  int64_t batch_slots = 0;
  Progression slots;
};

int64_t Stride(const Progression& rows) { return rows.count > 1 ? rows.step : 0; }

class Builder {
 public:
  Builder(const Plan& plan, const float* slopes)
      : plan_(plan), spec_(plan.spec), reach_(ReachOf(plan.spec)), slopes_(slopes) {}

  // visit(phase, asking, met), with the segments' whole lengths in `run`.
  template <typename Visit>
  void ForEachRun(const QueryBlock& queries, const Rows& keys, const Visit& visit) const {
    for (const SequencePair& pair :
         PairsWith(plan_.rectangle->pairs, &SequencePair::queries, queries.rows)) {
      const Rows asking =
          Overlap(queries.rows, {pair.queries.begin, pair.queries.begin + pair.queries.length});
      const Rows met = Overlap(keys, {pair.keys.begin, pair.keys.begin + pair.keys.length});
      if (asking.count() == 0 || met.count() == 0) continue;
      for (const Phase& phase : plan_.phases) {
        if (spec_.ordering) {
          VisitRows(queries, pair, phase, asking, met, visit);
        } else {
          VisitRuns(pair, phase, asking, met, visit);
        }
      }
    }
  }

  AttentionTask Task(const QueryBlock& queries, const KeyRows& keys, const Phase& phase,
                     const Asking& asking, const Met& met, int64_t kv_head) const {
    const HeadRange heads = QueryHeads(spec_, phase, kv_head);
    const int64_t element = ElementBytes(spec_.dtype);
    const int64_t first = asking.rows.first - queries.rows.begin;
    const int64_t key = met.slots.first - keys.rows.begin;
    const auto key_view = [&](const std::byte* data, int64_t dim) {
      const int64_t row = spec_.kv_heads * dim;
      return ConstView{.data = data + (key * row + kv_head * dim) * element,
                       .batch_stride = met.batch_slots * row,
                       .row_stride = Stride(met.slots) * row,
                       .head_stride = dim};
    };
    AttentionTask task = UnitTask(spec_, heads, slopes_);
    task.batch = asking.batch;
    task.query_rows = asking.rows.count;
    task.key_rows = met.slots.count;
    const int64_t q_row = spec_.heads * spec_.head_dim;
    task.q = {.data = queries.q + (first * q_row + heads.begin * spec_.head_dim) * element,
              .batch_stride = asking.batch_rows * q_row,
              .row_stride = Stride(asking.rows) * q_row,
              .head_stride = spec_.head_dim};
    task.k = key_view(keys.k, spec_.head_dim);
    task.v = key_view(keys.v, spec_.value_dim);
    task.result = Result::kMerge;
    task.out = OutOf(queries, asking, heads.begin);
    task.state = StateOf(queries, asking, heads.begin);
    task.change.row_distance = asking.rows.step;
    if (NeedsPositions(spec_)) {
      task.query_positions = {.data = queries.positions + first};
      task.key_positions = {.data = keys.tokens + key, .row_stride = Stride(met.slots)};
    }
    if (const int64_t axes = BiasAxes(spec_); axes > 0) {
      task.query_coordinates = {.data = queries.coordinates + first * axes,
                                .batch_stride = asking.batch_rows * axes,
                                .row_stride = Stride(asking.rows) * axes};
      task.key_coordinates = {.data = keys.coordinates + key * axes,
                              .batch_stride = met.batch_slots * axes,
                              .row_stride = Stride(met.slots) * axes};
    }
    return task;
  }

  MutableView OutOf(const QueryBlock& queries, const Asking& asking, int64_t head) const {
    const int64_t row = spec_.heads * spec_.value_dim;
    return {.data = queries.out + (asking.rows.first - queries.rows.begin) * row +
                    head * spec_.value_dim,
            .batch_stride = asking.batch_rows * row,
            .row_stride = Stride(asking.rows) * row,
            .head_stride = spec_.value_dim};
  }

  StateView StateOf(const QueryBlock& queries, const Asking& asking, int64_t head) const {
    const int64_t at = (asking.rows.first - queries.rows.begin) * spec_.heads + head;
    return {.max = queries.max + at,
            .sum = queries.sum + at,
            .batch_stride = asking.batch_rows * spec_.heads,
            .row_stride = Stride(asking.rows) * spec_.heads,
            .head_stride = 1};
  }

 private:
  // Without an ordering.
  template <typename Visit>
  void VisitRuns(const SequencePair& pair, const Phase& phase, const Rows& asking, const Rows& met,
                 const Visit& visit) const {
    const int64_t dilation = spec_.branches[phase.branch].dilation;
    const int64_t to_slot = PositionOf(pair, 0);
    for (const SegmentRun& run : RunsOf(spec_, phase.branch, pair, asking, met)) {
      const Progression rows = SelectedOf(run, phase, dilation, run.queries);
      const Progression slots = SelectedOf(run, phase, dilation, run.keys);
      if (rows.count == 0 || slots.count == 0 || !Sees(reach_, rows, slots)) continue;
      const int64_t shift = (rows.first - slots.first) / rows.step;
      visit(pair, phase,
            Asking{.batch = run.count,
                   .batch_rows = run.length,
                   .rows = {rows.first - to_slot, rows.step, rows.count}},
            Met{.batch_slots = run.length, .slots = slots}, shift, run);
    }
  }

  // Each query on its own, since those of a segment lie anywhere.
  template <typename Visit>
  void VisitRows(const QueryBlock& queries, const SequencePair& pair, const Phase& phase,
                 const Rows& asking, const Rows& met, const Visit& visit) const {
    const Branch& branch = spec_.branches[phase.branch];
    const int64_t length = SegmentLength(branch, pair.keys);
    const int64_t sequence_end = pair.keys.begin + pair.keys.length;
    for (int64_t query = asking.begin; query < asking.end; ++query) {
      const int64_t slot = queries.slots.empty() ? PositionOf(pair, query)
                                                 : queries.slots[query - queries.rows.begin];
      const int64_t begin = pair.keys.begin + (slot - pair.keys.begin) / length * length;
      const bool dense = length == pair.keys.length && branch.dilation == 1;
      const int64_t ahead = slot - begin - phase.offset;
      if (!dense && (ahead < 0 || ahead % branch.dilation != 0)) continue;
      const Rows whole{begin, std::min(begin + length, sequence_end)};
      const SegmentRun run{.begin = begin,
                           .length = whole.count(),
                           .full_length = length,
                           .queries = {slot, slot + 1},
                           .keys = Overlap(whole, met)};
      const Progression slots = SelectedOf(run, phase, branch.dilation, run.keys);
      if (slots.count == 0) continue;
      visit(pair, phase, Asking{.rows = {query, 1, 1}}, Met{.slots = slots}, 0, run);
    }
  }

  const Plan& plan_;
  const JobSpec& spec_;
  const Reach reach_;
  const float* const slopes_;
};

}  // namespace

int64_t PositionOf(const SequencePair& pair, int64_t query) {
  return pair.keys.begin + pair.shift + query - pair.queries.begin;
}

Rounds RectangleTasks(const Plan& plan, std::span<const QueryBlock> queries,
                      std::span<const KeyRows> keys, const float* slopes) {
  const Builder builder(plan, slopes);
  // Blocks of keys and mixed branches write the same rows.
  const size_t branches = MixesBranches(plan.spec) ? plan.spec.branches.size() : 1;
  Rounds rounds(keys.size() * branches);
  for (size_t b = 0; b < keys.size(); ++b) {
    for (const QueryBlock& block : queries) {
      builder.ForEachRun(
          block, keys[b].rows,
          [&](const SequencePair&, const Phase& phase, const Asking& asking, const Met& met,
              int64_t shift, const SegmentRun&) {
            std::vector<AttentionTask>& round =
                rounds[b * branches + (branches > 1 ? phase.branch : 0)];
            for (int64_t kv_head = phase.kv_begin; kv_head < phase.kv_end; ++kv_head) {
              AttentionTask task = builder.Task(block, keys[b], phase, asking, met, kv_head);
              task.diagonal_shift = shift;
              round.push_back(task);
            }
          });
    }
  }
  return rounds;
}

TaskBuilder::ZeroKeys RectangleZeroKeys(const Plan& plan, const QueryBlock& queries) {
  const JobSpec& spec = plan.spec;
  TaskBuilder::ZeroKeys tasks(spec.branches.size());
  if (!AddsZeroKeys(spec)) return tasks;
  const Builder builder(plan, nullptr);
  builder.ForEachRun(
      queries, {0, KeyTokens(spec)},
      [&](const SequencePair& pair, const Phase& phase, const Asking& asking, const Met&, int64_t,
          const SegmentRun& run) {
        const Branch& branch = spec.branches[phase.branch];
        const int64_t end = std::min(run.begin + run.length, pair.keys.begin + pair.keys.length);
        const Progression selected =
            Selected(run.begin, phase.offset, branch.dilation, run.begin, end);
        const int64_t zeros = ZeroKeys(spec, branch, run.full_length, selected.count);
        if (zeros <= 0) return;
        tasks[phase.branch].push_back({.batch = asking.batch,
                                       .rows = asking.rows.count,
                                       .heads = phase.heads(),
                                       .value_dim = spec.value_dim,
                                       .out = builder.OutOf(queries, asking, phase.head_begin),
                                       .state = builder.StateOf(queries, asking, phase.head_begin),
                                       .scale = StateScale(spec),
                                       .count = zeros});
      });
  return tasks;
}

}  // namespace hilbert_ring
