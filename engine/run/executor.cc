#include "engine/run/executor.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>

#include "engine/base/return_if_error.h"
#include "engine/plan/rank_schedule.h"
#include "engine/run/rank_views.h"
#include "engine/run/stretches.h"
#include "engine/run/tasks.h"

namespace hilbert_ring {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Only NCCL moves blocks between devices; other transports use host memory.
constexpr char kDeviceTransport[] = "nccl";

struct Workspace {
  std::unique_ptr<Buffer> arena;         // packed and arrived blocks
  std::unique_ptr<Buffer> accumulators;  // of merged rows
  std::unique_ptr<Buffer> query_slots;   // int64 [rows], if queries' positions are slots
  AccumulatorMemory accumulator_memory;  // in `accumulators`
  std::vector<std::vector<float*>> piece_accumulators;  // in `accumulators`: [exchange][block]

  // A host copy of the arena, if the communicator cannot access the device's memory.
  std::vector<std::byte> host_arena;

  int64_t bytes() const { return arena->bytes() + accumulators->bytes() + query_slots->bytes(); }
};

class Executor {
 public:
  Executor(const Plan& plan, int rank, ShardStore& store, Device& device,
           Communicator* communicator, int64_t first_step, const ExecuteControl& control)
      : plan_(plan),
        rank_(rank),
        store_(store),
        device_(device),
        communicator_(communicator),
        first_step_(first_step),
        control_(control),
        schedule_(MakeRankSchedule(plan, rank)) {}

  absl::StatusOr<Figures> Run() {
    auto figures = RunSteps();
    if (!figures.ok() && in_flight_) {
      // Transfers must not outlive the arena.
      communicator_->Abort(std::string(figures.status().message()));
      const absl::Status left = communicator_->Wait(Clock::now());
      if (left.GetPayload(kMemoryInUse).has_value()) return left;
    }
    return figures;
  }

 private:
  // Enough rows for many threads, yet few against a job. A GPU waits for the host between
  // stretches.
  int64_t LeastStretchRows() const { return device_.host_memory() ? 8192 : int64_t{1} << 18; }

  absl::StatusOr<Figures> RunSteps() {
    RETURN_IF_ERROR(Prepare());
    const RankViews views(plan_, store_, workspace_.accumulator_memory,
                          workspace_.query_slots->bytes() > 0 ? QuerySlots() : nullptr);
    const TaskBuilder builder(plan_, rank_, schedule_, views, workspace_.piece_accumulators);
    const bool exchanges_blocks = !schedule_.exchanges.empty();
    if (exchanges_blocks) {
      RETURN_IF_ERROR(AwaitRows(store_.rows()));
      RETURN_IF_ERROR(PackOwnBlocks(views));
    }
    RETURN_IF_ERROR(Post(1));
    for (const Stretch& stretch :
         MakeStretches(plan_, rank_, exchanges_blocks, LeastStretchRows())) {
      RETURN_IF_ERROR(AwaitRows(stretch.rows_needed));
      RETURN_IF_ERROR(Compute(builder.Local(stretch)));
      RETURN_IF_ERROR(Finish(builder, builder.LocalZeroKeys(stretch), stretch.rows_final));
    }
    RETURN_IF_ERROR(Compute(builder.Own()));
    for (int64_t step = 1; step <= plan_.costs.steps; ++step) {
      RETURN_IF_ERROR(Wait(step));
      RETURN_IF_ERROR(Post(step + 1));
      const ScheduleStep& now = schedule_.steps[step - 1];
      RETURN_IF_ERROR(Compute(builder.Arrived(now.arrived, workspace_.arena->data())));
    }
    if (exchanges_blocks) {
      RETURN_IF_ERROR(Finalize(builder.FinalizePieces()));
      RETURN_IF_ERROR(Finish(builder, builder.SpanningZeroKeys(), store_.rows()));
    }
    figures_.flops = static_cast<double>(scores_.load()) * FlopsPerScore();
    figures_.library_flops = static_cast<double>(library_scores_) * FlopsPerScore();
    if (control_.progress) control_.progress(1.0);
    return figures_;
  }

  absl::Status AwaitRows(int64_t rows) {
    if (rows <= rows_there_) return absl::OkStatus();
    if (control_.await_rows) {
      RETURN_IF_ERROR(control_.await_rows(rows));
    }
    rows_there_ = rows;
    return absl::OkStatus();
  }

  absl::Status Finalize(const std::vector<FinalizeTask>& tasks) {
    const Clock::time_point start = Clock::now();
    absl::Status status = device_.Finalize(tasks);
    figures_.compute_seconds += SecondsSince(start);
    Report(SpanKind::kMerge, step_, start);
    return status;
  }

  absl::Status Finish(const TaskBuilder& builder, const TaskBuilder::ZeroKeys& zero_keys,
                      int64_t rows_final) {
    const Clock::time_point start = Clock::now();
    for (const std::vector<MergeTask>& of_branch : zero_keys) {
      RETURN_IF_ERROR(device_.Merge(of_branch));
    }
    figures_.compute_seconds += SecondsSince(start);
    if (!zero_keys.empty()) Report(SpanKind::kMerge, step_, start);
    if (rows_final > rows_final_) {
      RETURN_IF_ERROR(Finalize(builder.FinalizeRows(rows_final_, rows_final)));
      rows_final_ = rows_final;
      if (control_.rows_final) control_.rows_final(rows_final);
    }
    return absl::OkStatus();
  }

  double FlopsPerScore() const {
    return 2.0 * static_cast<double>(plan_.spec.head_dim + plan_.spec.value_dim);
  }

  // The memory that the communicator uses, at the schedule's offsets.
  std::byte* ExchangeArena() {
    return workspace_.host_arena.empty() ? workspace_.arena->data() : workspace_.host_arena.data();
  }

  int64_t* QuerySlots() { return reinterpret_cast<int64_t*>(workspace_.query_slots->data()); }

  absl::Status AllocateTo(std::unique_ptr<Buffer>& buffer, int64_t bytes) {
    ASSIGN_OR_RETURN(buffer, device_.Allocate(bytes));
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    const JobSpec& spec = plan_.spec;
    const bool slots = NeedsPositions(spec) && spec.ordering->scope == OrderScope::kKv;
    const int64_t slot_bytes = slots ? store_.rows() * static_cast<int64_t>(sizeof(int64_t)) : 0;
    RETURN_IF_ERROR(AllocateTo(workspace_.query_slots, slot_bytes));
    RETURN_IF_ERROR(AllocateTo(workspace_.arena, schedule_.arena_bytes));
    RETURN_IF_ERROR(
        AllocateTo(workspace_.accumulators, plan_.costs.workers[rank_].accumulator_bytes));
    figures_.memory_peak_bytes = store_.bytes() + workspace_.bytes();
    if (slots) {
      for (const ShardRange& range : plan_.shards.OfRank(rank_)) {
        RETURN_IF_ERROR(
            device_.FillSequence(QuerySlots() + range.local_begin, range.size(), range.begin));
      }
    }
    if (!device_.host_memory() && communicator_ != nullptr &&
        communicator_->name() != kDeviceTransport) {
      workspace_.host_arena.resize(static_cast<size_t>(schedule_.arena_bytes));
    }
    if (workspace_.accumulators->bytes() > 0) PlaceAccumulators();
    RETURN_IF_ERROR(CopyHeadNumbers());
    return device_.FillFloats(reinterpret_cast<float*>(store_.Row(TensorKind::kLse, 0)),
                              store_.rows() * spec.heads, -std::numeric_limits<float>::infinity());
  }

  // Slopes and sinks are the end of the accumulators' memory.
  absl::Status CopyHeadNumbers() {
    const JobSpec& spec = plan_.spec;
    std::vector<float> numbers;
    if (spec.alibi) numbers.assign(spec.alibi->slopes.begin(), spec.alibi->slopes.end());
    const size_t slopes = numbers.size();
    numbers.insert(numbers.end(), spec.sinks.begin(), spec.sinks.end());
    if (numbers.empty()) return absl::OkStatus();
    Buffer& memory = *workspace_.accumulators;
    std::byte* const at = memory.data() + memory.bytes() - HeadNumberBytes(spec);
    const auto* placed = reinterpret_cast<const float*>(at);
    if (slopes > 0) workspace_.accumulator_memory.slopes = placed;
    if (!spec.sinks.empty()) workspace_.accumulator_memory.sinks = placed + slopes;
    return device_.CopyIn(at, numbers.data(), HeadNumberBytes(spec));
  }

  void PlaceAccumulators() {
    auto* next = reinterpret_cast<float*>(workspace_.accumulators->data());
    workspace_.accumulator_memory.sums = next;
    next += store_.rows() * plan_.spec.heads;
    if (plan_.spec.dtype == DataType::kFloat32) return;
    if (AccumulatesWholeShard(plan_.spec)) {
      workspace_.accumulator_memory.out = next;
      return;
    }
    for (const RankExchange& exchange : schedule_.exchanges) {
      std::vector<float*>& blocks = workspace_.piece_accumulators.emplace_back();
      for (const Block& block : exchange.all.blocks()) {
        const bool own = block.rank == rank_;
        blocks.push_back(own ? next : nullptr);
        if (own)
          next += block.rows.count * plan_.phases[exchange.phase].heads() * plan_.spec.value_dim;
      }
    }
  }

  absl::Status PackOwnBlocks(const RankViews& views) {
    const Clock::time_point start = Clock::now();
    const JobSpec& spec = plan_.spec;
    const int64_t element = ElementBytes(spec.dtype);
    std::vector<PackTask> tasks;
    for (const ArenaBlock& packed : schedule_.packed) {
      const RankExchange& exchange = schedule_.exchanges[packed.exchange];
      const Phase& phase = plan_.phases[exchange.phase];
      const LocalRows rows{.rows = exchange.all.blocks()[packed.block].rows};
      std::byte* to = workspace_.arena->data() + packed.offset;
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
      }
    }
    absl::Status status = device_.Pack(tasks);
    for (const ArenaBlock& packed : schedule_.packed) {
      if (!status.ok() || workspace_.host_arena.empty()) break;
      status = device_.CopyOut(ExchangeArena() + packed.offset,
                               workspace_.arena->data() + packed.offset, packed.bytes);
    }
    figures_.compute_seconds += SecondsSince(start);
    return status;
  }

  absl::Status Post(int64_t step) {
    if (step > plan_.costs.steps) return absl::OkStatus();
    const ScheduleStep& transfers = schedule_.steps[step - 1];
    if (transfers.sends.empty() && transfers.receives.empty()) return absl::OkStatus();
    CommStep comm{.number = first_step_ + step - 1};
    for (const BlockTransfer& send : transfers.sends) {
      comm.sends.push_back(
          {.peer = send.peer, .data = ExchangeArena() + send.offset, .bytes = send.bytes});
      figures_.bytes_sent += send.bytes;
    }
    for (const BlockTransfer& receive : transfers.receives) {
      comm.receives.push_back(
          {.peer = receive.peer, .data = ExchangeArena() + receive.offset, .bytes = receive.bytes});
      figures_.bytes_received += receive.bytes;
    }
    posted_ = Clock::now();
    in_flight_ = true;
    absl::Status status = communicator_->Post(comm);
    // A socket's Post sends in this thread.
    figures_.exposed_exchange_seconds += SecondsSince(posted_);
    Report(SpanKind::kWait, step, posted_);
    return status;
  }

  absl::Status Wait(int64_t step) {
    const ScheduleStep& transfers = schedule_.steps[step - 1];
    if (transfers.sends.empty() && transfers.receives.empty()) return absl::OkStatus();
    if (control_.cancelled && control_.cancelled()) return absl::CancelledError("job cancelled");
    const Clock::time_point start = Clock::now();
    if (control_.waiting) control_.waiting(step);
    absl::Status status = communicator_->Wait(Due());
    if (control_.waiting) control_.waiting(0);
    if (status.ok()) in_flight_ = false;
    for (const BlockTransfer& receive : transfers.receives) {
      if (!status.ok() || workspace_.host_arena.empty()) break;
      status = device_.CopyIn(workspace_.arena->data() + receive.offset,
                              ExchangeArena() + receive.offset, receive.bytes);
    }
    figures_.exposed_exchange_seconds += SecondsSince(start);
    figures_.exchange_seconds += SecondsSince(posted_);
    step_ = step;
    Report(SpanKind::kWait, step, start);
    Report(SpanKind::kReceiveBlocks, step, posted_);
    return status;
  }

  absl::Status Compute(const Rounds& rounds) {
    const Clock::time_point start = Clock::now();
    const AttendControl attend{.cancelled = [this] { return Stopped(); },
                               .progress = [this](int64_t scores) { Progress(scores); }};
    for (const std::vector<AttentionTask>& round : rounds) {
      if (round.empty()) continue;
      auto attended = device_.Attend(round, attend);
      if (!attended.ok()) {
        return absl::IsCancelled(attended.status()) && Clock::now() >= Due()
                   ? absl::DeadlineExceededError("the job's deadline passed while computing")
                   : attended.status();
      }
      library_scores_ += attended->library_scores;
      if (figures_.library_refusal.empty()) {
        figures_.library_refusal = std::move(attended->library_refusal);
      }
    }
    figures_.compute_seconds += SecondsSince(start);
    if (!rounds.empty()) Report(SpanKind::kAttend, step_, start);
    return absl::OkStatus();
  }

  void Report(SpanKind kind, int64_t step, Clock::time_point begin) const {
    if (control_.span) control_.span(kind, step, begin, Clock::now());
  }

  Deadline Due() const { return control_.deadline ? control_.deadline() : Deadline::max(); }

  bool Stopped() const {
    return (control_.cancelled && control_.cancelled()) || Clock::now() >= Due();
  }

  void Progress(int64_t scores) {
    const int64_t done = scores_.fetch_add(scores) + scores;
    const double planned = plan_.costs.workers[rank_].flops;
    if (control_.progress && planned > 0) {
      control_.progress(std::min(1.0, static_cast<double>(done) * FlopsPerScore() / planned));
    }
  }

  const Plan& plan_;
  const int rank_;
  ShardStore& store_;
  Device& device_;
  Communicator* const communicator_;
  const int64_t first_step_;
  const ExecuteControl& control_;
  const RankSchedule schedule_;
  Workspace workspace_;
  Figures figures_;
  std::atomic<int64_t> scores_ = 0;
  int64_t library_scores_ = 0;  // included in scores_
  int64_t rows_there_ = 0;      // local rows [0, rows_there_) have come
  int64_t rows_final_ = 0;
  Clock::time_point posted_;
  int64_t step_ = 0;        // the last whose blocks came
  bool in_flight_ = false;  // a posted step was not waited for
};

}  // namespace

absl::StatusOr<Figures> Execute(const Plan& plan, int rank, ShardStore& store, Device& device,
                                Communicator* communicator, int64_t first_step,
                                const ExecuteControl& control) {
  return Executor(plan, rank, store, device, communicator, first_step, control).Run();
}

}  // namespace hilbert_ring
