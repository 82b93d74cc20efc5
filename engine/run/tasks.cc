#include "engine/run/tasks.h"

#include <algorithm>

namespace hilbert_ring {
namespace {

LocalRows RunRows(const Plan& plan, const LocalSegments& run, const Phase& phase) {
  return {.batch = run.count,
          .batch_slots = run.length,
          .rows = Selected(run.begin, phase.offset, plan.spec.branches[run.branch].dilation,
                           run.begin, run.begin + run.length)};
}

LocalRows BlockRows(const Block& block) { return {.rows = block.rows}; }

void AddToRound(Rounds& rounds, size_t round, AttentionTask task) {
  if (rounds.size() <= round) rounds.resize(round + 1);
  rounds[round].push_back(task);
}

}  // namespace

float OutScale(const JobSpec& spec) {
  if (spec.mixing != Mixing::kHeadGroups || !spec.average_groups) return 1.0f;
  return static_cast<float>(1.0 / static_cast<double>(spec.branches.size()));
}

float StateScale(const JobSpec& spec) {
  return ChangesScores(spec) ? 1.0f : static_cast<float>(spec.Scale());
}

AttentionTask UnitTask(const JobSpec& spec, const HeadRange& heads, const float* slopes) {
  AttentionTask task;
  task.dtype = spec.dtype;
  task.heads = heads.end - heads.begin;
  task.head_dim = spec.head_dim;
  task.value_dim = spec.value_dim;
  task.scale = static_cast<float>(spec.Scale());
  task.change = {.softcap = static_cast<float>(spec.softcap.value_or(0)),
                 .slopes = slopes == nullptr ? nullptr : slopes + heads.begin,
                 .axes = BiasAxes(spec)};
  if (NeedsPositions(spec)) {
    task.mask = spec.causal ? Mask::kPositions : Mask::kNone;
  } else if (const Reach reach = ReachOf(spec); reach.bounded()) {
    task.mask = Mask::kDiagonal;
    task.left = reach.left;
    task.right = reach.right;
  }
  return task;
}

TaskBuilder::TaskBuilder(const Plan& plan, int rank, const RankSchedule& schedule,
                         const RankViews& views,
                         const std::vector<std::vector<float*>>& piece_accumulators)
    : plan_(plan),
      rank_(rank),
      schedule_(schedule),
      views_(views),
      piece_accumulators_(piece_accumulators) {}

Accumulator TaskBuilder::AccumulatorOf(const LocalRows& rows, int exchange, int block,
                                       int64_t head) const {
  if (piece_accumulators_.empty()) return views_.WholeAccumulator(rows, head);
  return views_.PieceAccumulator(rows, piece_accumulators_[exchange][block],
                                 plan_.phases[schedule_.exchanges[exchange].phase], head);
}

AttentionTask TaskBuilder::TaskShape(const LocalRows& queries, const KeyBlock& keys,
                                     const Phase& phase, int64_t kv_head) const {
  const JobSpec& spec = plan_.spec;
  const HeadRange heads = QueryHeads(spec, phase, kv_head);
  AttentionTask task = UnitTask(spec, heads, views_.Slopes(0));
  task.batch = queries.batch;
  task.query_rows = queries.rows.count;
  task.key_rows = keys.rows.count;
  task.q = views_.Rows(TensorKind::kQ, queries, heads.begin);
  task.k = keys.k;
  task.v = keys.v;
  const int64_t element = ElementBytes(spec.dtype);
  const int64_t ahead = kv_head - phase.kv_begin;
  task.k.data = static_cast<const std::byte*>(keys.k.data) + ahead * keys.k.head_stride * element;
  task.v.data = static_cast<const std::byte*>(keys.v.data) + ahead * keys.v.head_stride * element;
  task.change.row_distance = queries.rows.step;
  // Both progressions have the same phase, so the distance is a multiple of the step.
  task.diagonal_shift = (queries.rows.first - keys.rows.first) / queries.rows.step;
  if (NeedsPositions(spec)) {
    task.query_positions = views_.QueryPositions(queries);
    task.key_positions = keys.positions;
  }
  task.query_coordinates = views_.QueryCoordinates(queries);
  task.key_coordinates = keys.coordinates;
  return task;
}

// visit(run, phase, rows): segments of the stretch that lie within the rank.
template <typename Visit>
void TaskBuilder::ForEachLocal(const Stretch& stretch, const Visit& visit) const {
  for (size_t branch = 0; branch < plan_.spec.branches.size(); ++branch) {
    const PhaseRange phases = PhasesOf(plan_.phases, static_cast<int>(branch));
    for (const LocalSegments& whole_run :
         RunsWithin(plan_.segments, static_cast<int>(branch), stretch.begin, stretch.end)) {
      const LocalSegments run = InStretch(whole_run, stretch);
      if (run.count == 0) continue;
      for (size_t p = phases.begin; p < phases.end; ++p) {
        visit(run, plan_.phases[p], RunRows(plan_, run, plan_.phases[p]));
      }
    }
  }
}

Rounds TaskBuilder::Local(const Stretch& stretch) const {
  const bool accumulates = AccumulatesWholeShard(plan_.spec);
  Rounds rounds;
  ForEachLocal(stretch, [&](const LocalSegments& run, const Phase& phase, const LocalRows& rows) {
    if (rows.rows.count == 0) return;
    const KeyBlock keys{
        .rows = rows.rows,
        .k = views_.Rows(TensorKind::kK, rows, phase.kv_begin),
        .v = views_.Rows(TensorKind::kV, rows, phase.kv_begin),
        .positions = NeedsPositions(plan_.spec) ? views_.KeyPositions(rows) : PositionsView{},
        .coordinates = views_.KeyCoordinates(rows)};
    for (int64_t kv_head = phase.kv_begin; kv_head < phase.kv_end; ++kv_head) {
      AttentionTask task = TaskShape(rows, keys, phase, kv_head);
      const int64_t head = QueryHeads(plan_.spec, phase, kv_head).begin;
      if (accumulates) {
        const Accumulator accumulator = views_.WholeAccumulator(rows, head);
        task.result = Result::kMerge;
        task.out = accumulator.out;
        task.state = accumulator.state;
      } else {
        task.result = Result::kWrite;
        task.out_dtype = plan_.spec.dtype;
        task.out = views_.Out(rows, head);
        task.lse = views_.Lse(rows, head);
        task.out_scale = OutScale(plan_.spec);
      }
      // Mixed branches write the same rows; head groups write different heads.
      AddToRound(rounds, accumulates ? run.branch : 0, task);
    }
  });
  return rounds;
}

KeyBlock TaskBuilder::OwnKeys(const RankExchange& exchange, const Block& block) const {
  const Phase& phase = plan_.phases[exchange.phase];
  const LocalRows rows = BlockRows(block);
  return {.rows = block.rows,
          .k = views_.Rows(TensorKind::kK, rows, phase.kv_begin),
          .v = views_.Rows(TensorKind::kV, rows, phase.kv_begin),
          .positions = NeedsPositions(plan_.spec) ? views_.KeyPositions(rows) : PositionsView{},
          .coordinates = views_.KeyCoordinates(rows)};
}

KeyBlock TaskBuilder::ArenaKeys(const ArenaBlock& arrived, const std::byte* arena) const {
  const JobSpec& spec = plan_.spec;
  const RankExchange& exchange = schedule_.exchanges[arrived.exchange];
  const Phase& phase = plan_.phases[exchange.phase];
  const Block& block = exchange.all.blocks()[arrived.block];
  const std::byte* k = arena + arrived.offset;
  const std::byte* v =
      k + block.rows.count * phase.kv_heads() * spec.head_dim * ElementBytes(spec.dtype);
  const std::byte* positions =
      v + block.rows.count * phase.kv_heads() * spec.value_dim * ElementBytes(spec.dtype);
  KeyBlock keys{.rows = block.rows,
                .k = {.data = k,
                      .row_stride = phase.kv_heads() * spec.head_dim,
                      .head_stride = spec.head_dim},
                .v = {.data = v,
                      .row_stride = phase.kv_heads() * spec.value_dim,
                      .head_stride = spec.value_dim}};
  const std::byte* coordinates = positions;
  if (NeedsPositions(spec)) {
    keys.positions = {.data = reinterpret_cast<const int64_t*>(positions), .row_stride = 1};
    coordinates += block.rows.count * static_cast<int64_t>(sizeof(int64_t));
  }
  if (BiasAxes(spec) > 0) {
    keys.coordinates = {.data = reinterpret_cast<const float*>(coordinates),
                        .row_stride = BiasAxes(spec)};
  }
  return keys;
}

void TaskBuilder::AddKeys(int exchange_index, const KeyBlock& keys, Rounds& rounds,
                          std::vector<std::vector<size_t>>& used) const {
  const RankExchange& exchange = schedule_.exchanges[exchange_index];
  const Phase& phase = plan_.phases[exchange.phase];
  const Reach reach = ReachOf(plan_.spec);
  const std::vector<Block>& blocks = exchange.all.blocks();
  used.resize(schedule_.exchanges.size());
  used[exchange_index].resize(blocks.size(), 0);
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].rank != rank_) continue;
    if (!Sees(reach, blocks[b].rows, keys.rows)) continue;
    const LocalRows queries = BlockRows(blocks[b]);
    // Tasks on the same rows go to successive rounds. Mixed branches share rows, so each has its
    // own.
    const size_t turn = used[exchange_index][b]++;
    const size_t branches = MixesBranches(plan_.spec) ? plan_.spec.branches.size() : 1;
    const size_t round = turn * branches + (branches > 1 ? phase.branch : 0);
    for (int64_t kv_head = phase.kv_begin; kv_head < phase.kv_end; ++kv_head) {
      AttentionTask task = TaskShape(queries, keys, phase, kv_head);
      const int64_t head = QueryHeads(plan_.spec, phase, kv_head).begin;
      const Accumulator accumulator =
          AccumulatorOf(queries, exchange_index, static_cast<int>(b), head);
      task.result = Result::kMerge;
      task.out = accumulator.out;
      task.state = accumulator.state;
      AddToRound(rounds, round, task);
    }
  }
}

Rounds TaskBuilder::Own() const {
  Rounds rounds;
  std::vector<std::vector<size_t>> used;
  for (size_t r = 0; r < schedule_.exchanges.size(); ++r) {
    for (const Block& block : schedule_.exchanges[r].all.blocks()) {
      if (block.rank != rank_) continue;
      AddKeys(static_cast<int>(r), OwnKeys(schedule_.exchanges[r], block), rounds, used);
    }
  }
  return rounds;
}

Rounds TaskBuilder::Arrived(const std::vector<ArenaBlock>& blocks, const std::byte* arena) const {
  Rounds rounds;
  std::vector<std::vector<size_t>> used;
  for (const ArenaBlock& block : blocks) {
    AddKeys(block.exchange, ArenaKeys(block, arena), rounds, used);
  }
  return rounds;
}

void TaskBuilder::AddZeroKeys(const LocalRows& rows, const Phase& phase, int64_t zeros,
                              ZeroKeys& tasks) const {
  if (zeros <= 0 || rows.rows.count == 0) return;
  const Accumulator accumulator = views_.WholeAccumulator(rows, phase.head_begin);
  tasks[phase.branch].push_back({.batch = rows.batch,
                                 .rows = rows.rows.count,
                                 .heads = phase.heads(),
                                 .value_dim = plan_.spec.value_dim,
                                 .out = accumulator.out,
                                 .state = accumulator.state,
                                 .scale = StateScale(plan_.spec),
                                 .count = zeros});
}

TaskBuilder::ZeroKeys TaskBuilder::LocalZeroKeys(const Stretch& stretch) const {
  const JobSpec& spec = plan_.spec;
  ZeroKeys tasks(spec.branches.size());
  if (!AddsZeroKeys(spec)) return tasks;
  ForEachLocal(stretch, [&](const LocalSegments& run, const Phase& phase, const LocalRows& rows) {
    AddZeroKeys(
        rows, phase,
        hilbert_ring::ZeroKeys(spec, spec.branches[run.branch], run.full_length, rows.rows.count),
        tasks);
  });
  return tasks;
}

TaskBuilder::ZeroKeys TaskBuilder::SpanningZeroKeys() const {
  const JobSpec& spec = plan_.spec;
  ZeroKeys tasks(spec.branches.size());
  if (!AddsZeroKeys(spec)) return tasks;
  for (const RankExchange& exchange : schedule_.exchanges) {
    const SpanningSegment& segment = plan_.segments.spanning[exchange.segment];
    const Phase& phase = plan_.phases[exchange.phase];
    int64_t rows = 0;
    for (const Block& block : exchange.all.blocks()) rows += block.rows.count;
    const int64_t zeros =
        hilbert_ring::ZeroKeys(spec, spec.branches[phase.branch], segment.full_length, rows);
    for (const Block& block : exchange.all.blocks()) {
      if (block.rank == rank_) AddZeroKeys(BlockRows(block), phase, zeros, tasks);
    }
  }
  return tasks;
}

bool TaskBuilder::OutNeedsFinalizing() const {
  return plan_.spec.dtype != DataType::kFloat32 || OutScale(plan_.spec) != 1.0f ||
         !plan_.spec.sinks.empty();
}

FinalizeTask TaskBuilder::FinalizeOf(const LocalRows& rows, const Accumulator& from, int64_t head,
                                     int64_t heads) const {
  return {.batch = 1,
          .rows = rows.rows.count,
          .heads = heads,
          .value_dim = plan_.spec.value_dim,
          .from = {.data = from.out.data,
                   .row_stride = from.out.row_stride,
                   .head_stride = from.out.head_stride},
          .to_dtype = plan_.spec.dtype,
          .to = OutNeedsFinalizing() ? views_.Out(rows, head) : MutableView{},
          .scale = OutScale(plan_.spec),
          .state = from.state,
          .lse = views_.Lse(rows, head),
          .score_scale = StateScale(plan_.spec),
          .sinks = views_.Sinks(head)};
}

std::vector<FinalizeTask> TaskBuilder::FinalizeRows(int64_t begin, int64_t end) const {
  std::vector<FinalizeTask> tasks;
  if (!AccumulatesWholeShard(plan_.spec)) return tasks;
  for (const ShardRange& range : plan_.shards.OfRank(rank_)) {
    const int64_t first = std::max(begin, range.local_begin);
    const int64_t last = std::min(end, range.local_begin + range.size());
    if (first >= last) continue;
    const LocalRows rows{.rows = {.first = range.begin + first - range.local_begin,
                                  .step = 1,
                                  .count = last - first}};
    tasks.push_back(FinalizeOf(rows, views_.WholeAccumulator(rows, 0), 0, plan_.spec.heads));
  }
  return tasks;
}

std::vector<FinalizeTask> TaskBuilder::FinalizePieces() const {
  std::vector<FinalizeTask> tasks;
  if (AccumulatesWholeShard(plan_.spec)) return tasks;
  for (size_t r = 0; r < schedule_.exchanges.size(); ++r) {
    const Phase& phase = plan_.phases[schedule_.exchanges[r].phase];
    const std::vector<Block>& blocks = schedule_.exchanges[r].all.blocks();
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].rank != rank_) continue;
      const LocalRows rows = BlockRows(blocks[b]);
      tasks.push_back(FinalizeOf(
          rows, AccumulatorOf(rows, static_cast<int>(r), static_cast<int>(b), phase.head_begin),
          phase.head_begin, phase.heads()));
    }
  }
  return tasks;
}

}  // namespace hilbert_ring
