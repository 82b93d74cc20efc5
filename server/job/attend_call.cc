#include "server/job/attend_call.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/job_id.h"
#include "server/rows/coordinates.h"
#include "server/schedule/fit.h"
#include "wire/codec.h"
#include "wire/job_id.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// After a worker was lost, for another in its place, which finds its rows where they lie.
constexpr auto kReplacementLimit = std::chrono::milliseconds(500);
// A worker's stream may end before its heartbeats' does.
constexpr auto kNewsLimit = std::chrono::milliseconds(200);
// Until it is looked again whether those that are there are still the same.
constexpr auto kTurnLimit = std::chrono::seconds(1);

absl::Status BadOpen(const std::string& message) {
  return wire::ErrorOf(wire::reason::kInvalidOpen, message);
}

// That a job's client sends and gets; of a quota, which is at most kMostQuotaBytes.
int64_t BytesOf(const JobSpec& spec, bool want_lse) {
  int64_t of_row = 0;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
    of_row += wire::TensorRowBytes(spec, tensor);
  }
  if (want_lse) of_row += wire::TensorRowBytes(spec, v1::TENSOR_LSE);
  if (spec.ordering && spec.ordering->coordinate_axes > 0) {
    of_row += wire::TensorRowBytes(spec, v1::TENSOR_COORDS);
  }
  return spec.tokens > kMostQuotaBytes / of_row ? kMostQuotaBytes + 1 : spec.tokens * of_row;
}

// Of one job.
int64_t OrderMemoryLimit(const CoordinatorSettings& settings) {
  return std::min(settings.order_memory_limit_bytes, settings.total_order_memory_limit_bytes);
}

// Members of a ring before this one keep their ranks where as many are given again, so that the
// rows that they have stay where they are.
Members InOldRanks(const Members& before, Members now) {
  if (before.size() != now.size()) return now;
  for (size_t rank = 0; rank < before.size(); ++rank) {
    const auto found = std::find(now.begin(), now.end(), before[rank]);
    if (found != now.end()) std::swap(*found, now[rank]);
  }
  return now;
}

}  // namespace

SpecLimits LimitsOf(const CoordinatorSettings& settings) {
  return {.max_tokens = settings.max_tokens,
          .max_heads = settings.max_heads,
          .max_branches = settings.max_branches,
          .max_sequences = settings.max_sequences};
}

AttendCall::AttendCall(const JobServices& services, AttendStream& stream, Caller caller,
                       std::string traceparent)
    : services_(services),
      stream_(stream),
      caller_(std::move(caller)),
      traceparent_(std::move(traceparent)),
      course_(services.time),
      opened_(services.time.Now()) {}

AttendCall::~AttendCall() = default;

absl::StatusOr<v1::Report> AttendCall::Run() {
  absl::Status status = ReadOpen();
  if (status.ok()) {
    course_.SetJob(open_.job_id(), spec_.tokens);
    auto entry = services_.jobs.Enter(caller_.name, open_.job_id(), open_.attempt(),
                                      &stream_.stop(), &course_);
    status = entry.ok() ? RunJob() : entry.status();
    course_.Enter(status.ok() ? JobPhase::kDone : JobPhase::kFailed);
  }
  // When several things went wrong, the first of them is the reason for the others.
  if (absl::Status why = stream_.stop().why(); !status.ok() && !why.ok()) status = why;
  services_.metrics.CountJob(status.code(), wire::ReasonOf(status));
  if (status.ok()) {
    services_.metrics.ObserveJob(seconds_);
    services_.metrics.AddTokens(spec_.tokens);
  }
  NoteEnd(status);
  if (!status.ok()) return status;
  return std::move(report_);
}

absl::Status AttendCall::ReadOpen() {
  AttendMessage message;
  const absl::StatusOr<bool> more = stream_.Read(message, stream_.stop());
  if (!more.ok()) return more.status();
  course_.Enter(JobPhase::kValidating);
  if (!*more || !message.request.has_open()) return BadOpen("the first message must be Open");
  open_ = std::move(*message.request.mutable_open());
  if (absl::Status status = CheckJobId(open_.job_id()); !status.ok()) {
    open_.set_job_id("?");
    return wire::WithReason(std::move(status), wire::reason::kInvalidOpen);
  }
  if (open_.job_id().empty()) open_.set_job_id(wire::DrawJobId());
  if (open_.attempt() < 0) {
    return BadOpen(absl::StrCat("attempt is ", open_.attempt(), ", must not be negative"));
  }
  auto spec = wire::DecodeJobSpec(open_.spec());
  if (!spec.ok()) return spec.status();
  spec_ = *std::move(spec);
  open_.clear_spec();
  return Validate();
}

absl::Status AttendCall::Validate() const {
  const CoordinatorSettings& settings = services_.settings;
  if (absl::Status status = hilbert_ring::Validate(spec_, LimitsOf(settings)); !status.ok()) {
    return wire::WithReason(std::move(status), wire::reason::kInvalidSpec);
  }
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
    const int64_t row_bytes = wire::TensorRowBytes(spec_, tensor);
    if (row_bytes > wire::kMaxPayloadBytes) {
      return wire::WithReason(absl::OutOfRangeError(absl::StrCat(
                                  "heads: a row of ", wire::TensorName(tensor), " has ", row_bytes,
                                  " bytes, the limit of a chunk is ", wire::kMaxPayloadBytes)),
                              wire::reason::kInvalidSpec);
    }
  }
  if (spec_.ordering && spec_.ordering->coordinate_axes > 0 &&
      Coordinates::MemoryBytes(spec_) > OrderMemoryLimit(settings)) {
    return wire::ErrorOf(
        wire::reason::kDoesNotFit,
        absl::StrCat("ordering: coordinates of ", spec_.tokens, " tokens take ",
                     Coordinates::MemoryBytes(spec_), " bytes at the coordinator, whose limit is ",
                     OrderMemoryLimit(settings),
                     " (--order-memory-limit, --total-order-memory-limit)"));
  }
  return absl::OkStatus();
}

// On how many of the workers that are up it could run. What cannot run on them at all is refused,
// saying what would hold it.
absl::StatusOr<std::vector<JobSize>> AttendCall::Sizes() {
  auto sizes = SizesWithout(LeftOut());
  if (sizes.ok() || failed_.empty()) return sizes;
  failed_.clear();
  return SizesWithout(hung_);
}

Members AttendCall::LeftOut() const {
  Members left_out = hung_;
  left_out.insert(left_out.end(), failed_.begin(), failed_.end());
  return left_out;
}

absl::StatusOr<std::vector<JobSize>> AttendCall::SizesWithout(const Members& without) {
  asked_.clear();
  const auto gone = [this] { return !stream_.stop().why().ok(); };
  const Members there = services_.membership.Live();
  Members live = there;
  std::erase_if(live, [&](const auto& member) {
    return std::find(without.begin(), without.end(), member) != without.end();
  });
  if (live.empty()) {
    return wire::ErrorOf(wire::reason::kNoWorkers, "no worker is there");
  }
  int workers = static_cast<int>(std::min<size_t>(live.size(), kMaxWorkers));
  const int asked = services_.settings.job_workers;
  if (asked > 0) workers = std::min(asked, workers);
  PlanGate::Turn turn;
  if (!PlansFast(spec_, workers)) {
    auto awaited = services_.plans.Await(stream_.stop());
    if (!awaited.ok()) return awaited.status();
    turn = *std::move(awaited);
  }
  auto sizes =
      SizesOf(spec_, asked > 0 ? workers : 1, workers, services_.rate.flops_per_second(), gone);
  if (!sizes.ok()) return wire::WithReason(sizes.status(), wire::reason::kInvalidSpec);
  std::vector<int64_t> limits;
  for (const auto& member : live) limits.push_back(member->memory_limit_bytes);
  std::sort(limits.rbegin(), limits.rend());
  for (const JobSize& size : *sizes) {
    if (limits[size.workers - 1] < size.bytes) continue;
    asked_ = there;
    return sizes;
  }
  const auto plan = MakePlan(spec_, workers, gone);
  if (!plan.ok()) return wire::WithReason(plan.status(), wire::reason::kInvalidSpec);
  return CheckFits(*plan, std::vector<int64_t>(workers, limits[workers - 1]), gone);
}

absl::Status AttendCall::AwaitGrant(Scheduler::Place& place, Deadline deadline) {
  auto grant = place.Await(stream_.stop(), deadline, [this](int before) {
    const bool known = std::exchange(position_, before) == before;
    if (known || (job_ && job_->admitted)) return;
    v1::AttendResponse response;
    response.mutable_queued()->set_position(before);
    stream_.Offer(response);  // a client that does not read must not keep workers meanwhile
  });
  if (!grant.ok()) return grant.status();
  grant->members = InOldRanks(grant_.members, std::move(grant->members));
  grant_ = *std::move(grant);
  stream_.ReadAhead();  // rows come while the execution begins
  auto plan = MakePlan(spec_, static_cast<int>(grant_.members.size()),
                       [this] { return !stream_.stop().why().ok(); });
  if (!plan.ok()) return wire::WithReason(plan.status(), wire::reason::kInvalidSpec);
  plan_ = *std::move(plan);
  spdlog::debug(
      "job {} starts: {} tokens, {} heads, {} branches on {} workers{}, {} exchange steps",
      open_.job_id(), spec_.tokens, spec_.heads, spec_.branches.size(), grant_.members.size(),
      grant_.express ? " (express)" : "", plan_->costs.steps);
  return absl::OkStatus();
}

absl::Status AttendCall::ReserveQuota() {
  auto share = services_.quotas.Reserve(
      caller_, {.tokens = spec_.tokens, .bytes = BytesOf(spec_, open_.want_lse())});
  if (!share.ok()) return share.status();
  quota_.emplace(*std::move(share));
  return absl::OkStatus();
}

// Of all jobs together; before the job waits for its turn, so that it does not wait in vain.
absl::Status AttendCall::ReserveOrder() {
  if (!spec_.ordering || spec_.ordering->coordinate_axes == 0) return absl::OkStatus();
  auto reserved = services_.order_memory.Reserve(Coordinates::MemoryBytes(spec_));
  if (!reserved.ok()) {
    return wire::ErrorOf(
        wire::reason::kOrderMemory,
        absl::StrCat("ordering: coordinates of ", spec_.tokens, " tokens take ",
                     Coordinates::MemoryBytes(spec_), " bytes, jobs that run or wait have ",
                     services_.order_memory.used(), " of ", services_.order_memory.limit(),
                     " (--total-order-memory-limit)"));
  }
  order_memory_.emplace(*std::move(reserved));
  return absl::OkStatus();
}

absl::Status AttendCall::RunJob() {
  course_.Enter(JobPhase::kSizing);
  RETURN_IF_ERROR(ReserveQuota());
  if (!PlansFast(spec_, 1)) {
    RETURN_IF_ERROR(services_.scheduler.CheckRoom());
  }
  auto sizes = Sizes();
  if (!sizes.ok()) return sizes.status();
  RETURN_IF_ERROR(ReserveOrder());
  auto place = services_.scheduler.Enter({.caller = caller_.turns, .sizes = *std::move(sizes)});
  if (!place.ok()) return place.status();
  course_.Enter(JobPhase::kQueued);
  absl::Status status = AwaitWorkers(*place);
  if (!status.ok()) return status;
  seconds_.queue = SecondsBetween(opened_, services_.time.Now());
  job_.emplace(open_, spec_, services_.orders, course_, services_.settings.check_rows);
  job_->traceparent = traceparent_;
  if (order_memory_) job_->order_memory = &*order_memory_;
  while (true) {
    status = Execute();
    if (status.ok() || !MayRetry(status) || !stream_.stop().why().ok()) return status;
    if (job_->retries == services_.settings.max_retries) {
      return wire::WithReason(
          absl::Status(status.code(), absl::StrCat(status.message(), "; tried ", job_->retries + 1,
                                                   " times (--max-retries)")),
          wire::ReasonOf(status));
    }
    ++job_->retries;
    services_.metrics.CountRetry(wire::ReasonOf(status));
    spdlog::warn("job {} is tried again: {}", open_.job_id(), std::string(status.message()));
    course_.Enter(JobPhase::kQueued);
    if (status = AwaitOthers(*place); !status.ok()) return status;
  }
}

absl::Status AttendCall::Execute() {
  if (!grant_.express) services_.membership.SetJob(grant_.members, open_.job_id());
  live_before_ = services_.membership.Live().size();
  JobExecution execution(services_, stream_, *job_, *plan_, grant_);
  absl::StatusOr<ExecutionFigures> figures = execution.Run();
  if (!grant_.express) services_.membership.SetJob(grant_.members, "");
  services_.metrics.CountExecution(figures.status().code());
  if (!figures.ok()) {
    NoteFailures(execution, figures.status());
    return figures.status();
  }
  report_ = MakeReport(*std::move(figures));
  services_.membership.Worked(grant_.members);
  return absl::OkStatus();
}

void AttendCall::NoteFailures(const JobExecution& execution, const absl::Status& status) {
  const std::string why = absl::StrCat("job ", open_.job_id(), ": ", status.message());
  if (execution.stalled() != nullptr) {
    hung_.push_back(execution.stalled());
    services_.membership.Failed(*execution.stalled(), why);
  }
  if (execution.failed() != nullptr && execution.failed() != execution.stalled()) {
    failed_.push_back(execution.failed());
    services_.membership.Failed(*execution.failed(), why);
  }
}

// For the news of who is gone, then for a worker in the place of one that was lost: its rows are
// there. After a moment for those that live, until they can hold the job.
absl::Status AttendCall::AwaitOthers(Scheduler::Place& place) {
  const Clock::time_point start = services_.time.Now();
  const auto lost = [this] {
    return std::any_of(grant_.members.begin(), grant_.members.end(),
                       [](const auto& member) { return member->departed.stop_requested(); });
  };
  const auto replaced = [this] { return services_.membership.Live().size() >= live_before_; };
  while (true) {
    const int64_t seen = services_.membership.changes();
    const Deadline limit = start + (lost() ? kReplacementLimit : kNewsLimit);
    if (services_.time.Now() >= limit || (lost() && replaced())) break;
    absl::Status why = services_.membership.AwaitChange(seen, limit, stream_.stop());
    if (!why.ok()) return why;
  }
  asked_.clear();
  return AwaitWorkers(place);
}

// Workers may come and go meanwhile. Too few are waited for so long; enough that are busy, as long
// as any job waits for its turn.
absl::Status AttendCall::AwaitWorkers(Scheduler::Place& place) {
  const Deadline turn = services_.time.Now() + services_.settings.queue_timeout;
  Deadline enough = services_.time.Now() + services_.settings.recovery_timeout;
  while (true) {
    if (asked_.empty()) {
      const int64_t seen = services_.membership.changes();
      auto sizes = Sizes();
      if (!sizes.ok()) {
        place.GiveBack();
        if (course_.phase() != JobPhase::kParked) course_.Enter(JobPhase::kParked);
        if (services_.time.Now() >= enough) return NotEnough(sizes.status());
        absl::Status why = services_.membership.AwaitChange(seen, enough, stream_.stop());
        if (!why.ok()) return why;
        continue;
      }
      place.WaitAgain(*std::move(sizes), LeftOut());
      if (course_.phase() == JobPhase::kParked) course_.Enter(JobPhase::kQueued);
    }
    enough = services_.time.Now() + services_.settings.recovery_timeout;
    absl::Status status = AwaitGrant(place, std::min(turn, services_.time.Now() + kTurnLimit));
    if (!absl::IsResourceExhausted(status) || services_.time.Now() >= turn) return status;
    if (asked_ != services_.membership.Live()) asked_.clear();
  }
}

absl::Status AttendCall::NotEnough(const absl::Status& why) const {
  return wire::ErrorOf(
      wire::reason::kNotEnoughWorkers,
      absl::StrCat("workers were lost, and those that live could not take the job within ",
                   services_.settings.recovery_timeout.count(),
                   " ms (--recovery-timeout): ", why.message()));
}

}  // namespace hilbert_ring::server
