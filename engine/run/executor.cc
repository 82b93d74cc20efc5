#include "engine/run/executor.h"

#include <algorithm>

#include "engine/base/return_if_error.h"
#include "engine/plan/rank_schedule.h"
#include "engine/run/rank_run.h"
#include "engine/run/rank_views.h"
#include "engine/run/rectangle_run.h"
#include "engine/run/stretches.h"
#include "engine/run/tasks.h"

namespace hilbert_ring {
namespace {

class Executor {
 public:
  explicit Executor(RankRun& run)
      : run_(run), plan_(run.plan()), schedule_(MakeRankSchedule(plan_, run.rank())) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Prepare());
    const RankViews views(plan_, run_.store(), memory_, query_slots_);
    const TaskBuilder builder(plan_, run_.rank(), schedule_, views, piece_accumulators_);
    const bool exchanges_blocks = !schedule_.exchanges.empty();
    if (exchanges_blocks) {
      RETURN_IF_ERROR(run_.AwaitRows(run_.store().rows()));
      RETURN_IF_ERROR(PackOwnBlocks(views));
    }
    RETURN_IF_ERROR(Post(1));
    for (const Stretch& stretch :
         MakeStretches(plan_, run_.rank(), exchanges_blocks, LeastStretchRows())) {
      RETURN_IF_ERROR(run_.AwaitRows(stretch.rows_needed));
      for (const Stretch& part : PartsOf(plan_, stretch)) {
        RETURN_IF_ERROR(run_.Compute(builder.Local(part)));
        RETURN_IF_ERROR(Merge(builder.LocalZeroKeys(part)));
      }
      RETURN_IF_ERROR(Finish(builder, stretch.rows_final));
    }
    RETURN_IF_ERROR(run_.Compute(builder.Own()));
    for (int64_t step = 1; step <= plan_.costs.steps; ++step) {
      const ScheduleStep& now = schedule_.steps[step - 1];
      RETURN_IF_ERROR(run_.Wait(step, now.sends, now.receives));
      RETURN_IF_ERROR(Post(step + 1));
      RETURN_IF_ERROR(run_.Compute(builder.Arrived(now.arrived, run_.arena())));
    }
    if (exchanges_blocks) {
      RETURN_IF_ERROR(run_.Finalize(builder.FinalizePieces()));
      RETURN_IF_ERROR(Merge(builder.SpanningZeroKeys()));
      RETURN_IF_ERROR(Finish(builder, run_.store().rows()));
    }
    return absl::OkStatus();
  }

 private:
  // Enough rows for many threads, yet few against a job. A GPU waits for the host between
  // stretches: it takes few, unless rows come and go beside them.
  int64_t LeastStretchRows() const {
    if (run_.device().host_memory()) return 8192;
    constexpr int64_t kFew = int64_t{1} << 18;
    return run_.RowsCome() ? std::clamp<int64_t>(run_.store().rows() / 8, kFew / 16, kFew) : kFew;
  }

  absl::Status Post(int64_t step) {
    if (step > plan_.costs.steps) return absl::OkStatus();
    const ScheduleStep& transfers = schedule_.steps[step - 1];
    return run_.Post(step, transfers.sends, transfers.receives);
  }

  absl::Status Merge(const TaskBuilder::ZeroKeys& zero_keys) {
    for (const std::vector<MergeTask>& of_branch : zero_keys) {
      RETURN_IF_ERROR(run_.Merge(of_branch));
    }
    return absl::OkStatus();
  }

  absl::Status Finish(const TaskBuilder& builder, int64_t rows_final) {
    if (rows_final > rows_final_) {
      RETURN_IF_ERROR(run_.Finalize(builder.FinalizeRows(rows_final_, rows_final)));
      rows_final_ = rows_final;
      run_.TellFinal(rows_final);
    }
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    const JobSpec& spec = plan_.spec;
    const bool slots = NeedsPositions(spec) && spec.ordering->scope == OrderScope::kKv;
    RETURN_IF_ERROR(
        run_.Prepare(slots ? run_.store().rows() * static_cast<int64_t>(sizeof(int64_t)) : 0));
    if (slots) {
      query_slots_ = reinterpret_cast<int64_t*>(run_.others());
      for (const ShardRange& range : plan_.shards.OfRank(run_.rank())) {
        RETURN_IF_ERROR(run_.device().FillSequence(query_slots_ + range.local_begin, range.size(),
                                                   range.begin));
      }
    }
    PlaceAccumulators();
    return absl::OkStatus();
  }

  void PlaceAccumulators() {
    memory_.slopes = run_.slopes();
    memory_.sinks = run_.sinks();
    float* next = run_.accumulators();
    memory_.sums = next;
    next += run_.store().rows() * plan_.spec.heads;
    if (plan_.spec.dtype == DataType::kFloat32) return;
    if (AccumulatesWholeShard(plan_.spec)) {
      memory_.out = next;
      return;
    }
    for (const RankExchange& exchange : schedule_.exchanges) {
      std::vector<float*>& blocks = piece_accumulators_.emplace_back();
      for (const Block& block : exchange.all.blocks()) {
        const bool own = block.rank == run_.rank();
        blocks.push_back(own ? next : nullptr);
        if (own)
          next += block.rows.count * plan_.phases[exchange.phase].heads() * plan_.spec.value_dim;
      }
    }
  }

  absl::Status PackOwnBlocks(const RankViews& views) {
    const JobSpec& spec = plan_.spec;
    const int64_t element = ElementBytes(spec.dtype);
    std::vector<PackTask> tasks;
    for (const ArenaBlock& packed : schedule_.packed) {
      const RankExchange& exchange = schedule_.exchanges[packed.exchange];
      const Phase& phase = plan_.phases[exchange.phase];
      const LocalRows rows{.rows = exchange.all.blocks()[packed.block].rows};
      std::byte* to = run_.arena() + packed.offset;
      for (const TensorKind tensor : {TensorKind::kK, TensorKind::kV}) {
        const ConstView view = views.Rows(tensor, rows, phase.kv_begin);
        tasks.push_back({.from = view.data,
                         .rows = rows.rows.count,
                         .row_stride = view.row_stride * element,
                         .heads = phase.kv_heads(),
                         .head_stride = view.head_stride * element,
                         .head_bytes = view.head_stride * element,
                         .to = to});
        to += rows.rows.count * phase.kv_heads() * view.head_stride * element;
      }
      if (NeedsPositions(spec)) {
        const PositionsView view = views.KeyPositions(rows);
        tasks.push_back({.from = view.data,
                         .rows = rows.rows.count,
                         .row_stride = view.row_stride * static_cast<int64_t>(sizeof(int64_t)),
                         .head_bytes = sizeof(int64_t),
                         .to = to});
        to += rows.rows.count * static_cast<int64_t>(sizeof(int64_t));
      }
      if (const int64_t bytes = RowBytes(spec, TensorKind::kBiasCoords); bytes > 0) {
        const CoordinatesView view = views.KeyCoordinates(rows);
        tasks.push_back({.from = view.data,
                         .rows = rows.rows.count,
                         .row_stride = view.row_stride * static_cast<int64_t>(sizeof(float)),
                         .head_bytes = bytes,
                         .to = to});
      }
    }
    RETURN_IF_ERROR(run_.Pack(tasks));
    for (const ArenaBlock& packed : schedule_.packed) {
      RETURN_IF_ERROR(run_.Offer(packed.offset, packed.bytes));
    }
    return absl::OkStatus();
  }

  RankRun& run_;
  const Plan& plan_;
  const RankSchedule schedule_;
  AccumulatorMemory memory_;                             // in the run's accumulators
  std::vector<std::vector<float*>> piece_accumulators_;  // also: [exchange][block]
  int64_t* query_slots_ = nullptr;                       // [rows], if queries' positions are slots
  int64_t rows_final_ = 0;
};

}  // namespace

absl::StatusOr<Figures> Execute(const Plan& plan, int rank, ShardStore& store, Device& device,
                                Communicator* communicator, int64_t first_step,
                                const ExecuteControl& control) {
  RankRun run(plan, rank, store, device, communicator, first_step, control);
  return run.End(plan.rectangle ? RunRectangle(run) : Executor(run).Run());
}

}  // namespace hilbert_ring
