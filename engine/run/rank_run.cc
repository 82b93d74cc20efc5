#include "engine/run/rank_run.h"

#include <algorithm>
#include <limits>

#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Only NCCL moves blocks between devices; other transports use host memory.
constexpr char kDeviceTransport[] = "nccl";

}  // namespace

absl::Status RankRun::Prepare(int64_t others) {
  const WorkerCost& cost = plan_.costs.workers[rank_];
  ASSIGN_OR_RETURN(others_, device_.Allocate(others));
  ASSIGN_OR_RETURN(arena_, device_.Allocate(cost.exchange_buffer_bytes));
  ASSIGN_OR_RETURN(accumulators_, device_.Allocate(cost.accumulator_bytes));
  figures_.memory_peak_bytes = ListBytes(plan_) + store_.bytes() + others_->bytes() +
                               arena_->bytes() + accumulators_->bytes();
  if (!device_.host_memory() && communicator_ != nullptr &&
      communicator_->name() != kDeviceTransport) {
    host_arena_.resize(static_cast<size_t>(cost.exchange_buffer_bytes));
  }
  RETURN_IF_ERROR(CopyHeadNumbers());
  return device_.FillFloats(reinterpret_cast<float*>(store_.Row(TensorKind::kLse, 0)),
                            store_.rows(TensorKind::kLse) * plan_.spec.heads,
                            -std::numeric_limits<float>::infinity());
}

absl::Status RankRun::CopyHeadNumbers() {
  const JobSpec& spec = plan_.spec;
  std::vector<float> numbers;
  if (spec.alibi) numbers.assign(spec.alibi->slopes.begin(), spec.alibi->slopes.end());
  const size_t slopes = numbers.size();
  numbers.insert(numbers.end(), spec.sinks.begin(), spec.sinks.end());
  if (numbers.empty()) return absl::OkStatus();
  std::byte* const at = accumulators_->data() + accumulators_->bytes() - HeadNumberBytes(spec);
  const auto* placed = reinterpret_cast<const float*>(at);
  if (slopes > 0) slopes_ = placed;
  if (!spec.sinks.empty()) sinks_ = placed + slopes;
  return device_.CopyIn(at, numbers.data(), HeadNumberBytes(spec));
}

absl::Status RankRun::AwaitRows(int64_t rows) {
  if (rows <= rows_there_) return absl::OkStatus();
  if (control_.await_rows) {
    RETURN_IF_ERROR(control_.await_rows(rows));
  }
  rows_there_ = rows;
  return absl::OkStatus();
}

absl::Status RankRun::Compute(const Rounds& rounds) {
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

absl::Status RankRun::Merge(const std::vector<MergeTask>& tasks) {
  if (tasks.empty()) return absl::OkStatus();
  const Clock::time_point start = Clock::now();
  absl::Status status = Timed([&] { return device_.Merge(tasks); });
  Report(SpanKind::kMerge, step_, start);
  return status;
}

absl::Status RankRun::Finalize(const std::vector<FinalizeTask>& tasks) {
  const Clock::time_point start = Clock::now();
  absl::Status status = Timed([&] { return device_.Finalize(tasks); });
  Report(SpanKind::kMerge, step_, start);
  return status;
}

absl::Status RankRun::Pack(const std::vector<PackTask>& tasks) {
  return Timed([&] { return device_.Pack(tasks); });
}

absl::Status RankRun::Offer(int64_t offset, int64_t bytes) {
  if (host_arena_.empty()) return absl::OkStatus();
  return Timed(
      [&] { return device_.CopyOut(ExchangeArena() + offset, arena_->data() + offset, bytes); });
}

absl::Status RankRun::Timed(absl::FunctionRef<absl::Status()> compute) {
  const Clock::time_point start = Clock::now();
  absl::Status status = compute();
  figures_.compute_seconds += SecondsSince(start);
  return status;
}

absl::Status RankRun::Post(int64_t step, const std::vector<BlockTransfer>& sends,
                           const std::vector<BlockTransfer>& receives) {
  if (sends.empty() && receives.empty()) return absl::OkStatus();
  CommStep comm{.number = first_step_ + step - 1};
  for (const BlockTransfer& send : sends) {
    comm.sends.push_back(
        {.peer = send.peer, .data = ExchangeArena() + send.offset, .bytes = send.bytes});
    figures_.bytes_sent += send.bytes;
  }
  for (const BlockTransfer& receive : receives) {
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

absl::Status RankRun::Wait(int64_t step, const std::vector<BlockTransfer>& sends,
                           const std::vector<BlockTransfer>& receives) {
  if (sends.empty() && receives.empty()) return absl::OkStatus();
  if (control_.cancelled && control_.cancelled()) return absl::CancelledError("job cancelled");
  const Clock::time_point start = Clock::now();
  if (control_.waiting) control_.waiting(step);
  absl::Status status = communicator_->Wait(Due());
  if (control_.waiting) control_.waiting(0);
  if (status.ok()) in_flight_ = false;
  for (const BlockTransfer& receive : receives) {
    if (!status.ok() || host_arena_.empty()) break;
    status = device_.CopyIn(arena_->data() + receive.offset, ExchangeArena() + receive.offset,
                            receive.bytes);
  }
  figures_.exposed_exchange_seconds += SecondsSince(start);
  figures_.exchange_seconds += SecondsSince(posted_);
  step_ = step;
  Report(SpanKind::kWait, step, start);
  Report(SpanKind::kReceiveBlocks, step, posted_);
  return status;
}

absl::StatusOr<Figures> RankRun::End(const absl::Status& steps) {
  if (!steps.ok() && in_flight_) {
    // Transfers must not outlive the arena.
    communicator_->Abort(std::string(steps.message()));
    const absl::Status left = communicator_->Wait(Clock::now());
    if (left.GetPayload(kMemoryInUse).has_value()) return left;
  }
  RETURN_IF_ERROR(steps);
  figures_.flops = static_cast<double>(scores_.load()) * FlopsPerScore();
  figures_.library_flops = static_cast<double>(library_scores_) * FlopsPerScore();
  if (control_.progress) control_.progress(1.0);
  return figures_;
}

void RankRun::Report(SpanKind kind, int64_t step, Deadline begin) const {
  if (control_.span) control_.span(kind, step, begin, Clock::now());
}

bool RankRun::Stopped() const {
  return (control_.cancelled && control_.cancelled()) || Clock::now() >= Due();
}

void RankRun::Progress(int64_t scores) {
  const int64_t done = scores_.fetch_add(scores) + scores;
  const double planned = plan_.costs.workers[rank_].flops;
  if (control_.progress && planned > 0) {
    control_.progress(std::min(1.0, static_cast<double>(done) * FlopsPerScore() / planned));
  }
}

}  // namespace hilbert_ring
