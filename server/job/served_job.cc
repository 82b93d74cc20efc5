#include "server/job/served_job.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// A new worker in the place of a lost worker finds its rows in place.
constexpr auto kReplacementLimit = std::chrono::milliseconds(500);
// A worker's stream may end before its heartbeats do.
constexpr auto kNewsLimit = std::chrono::milliseconds(200);
constexpr auto kTurnLimit = std::chrono::seconds(1);  // between two looks at which workers are live

// Keeps the ranks of earlier members if their number is the same, so that their rows need not move.
Members InOldRanks(const Members& before, Members now) {
  if (before.size() != now.size()) return now;
  for (size_t rank = 0; rank < before.size(); ++rank) {
    const auto found = std::find(now.begin(), now.end(), before[rank]);
    if (found != now.end()) std::swap(*found, now[rank]);
  }
  return now;
}

}  // namespace

ServedJob::ServedJob(const JobServices& services, JobClient& client, Caller caller,
                     std::string traceparent, JobMethod method)
    : services_(services),
      client_(client),
      caller_(std::move(caller)),
      traceparent_(std::move(traceparent)),
      method_(method),
      course_(services.observers.time) {}

absl::StatusOr<v1::Report> ServedJob::Run() {
  absl::Status status = Open();
  if (status.ok()) {
    course_.SetJob(open_.job_id(), spec().tokens);
    auto entry = services_.observers.jobs.Enter(caller_.name, open_.job_id(), open_.attempt(),
                                                &client_.stop(), &course_);
    status = entry.ok() ? RunJob() : entry.status();
    course_.Enter(status.ok() ? JobPhase::kDone : JobPhase::kFailed);
  }
  // Later errors may follow from the stop.
  if (absl::Status why = client_.stop().why();
      !status.ok() && !why.ok() && !absl::StartsWith(status.message(), why.message())) {
    status = why;
  }
  services_.observers.metrics.CountJob(status.code(), wire::ReasonOf(status));
  if (status.ok()) {
    services_.observers.metrics.ObserveJob(seconds_);
    services_.observers.metrics.AddTokens(tokens());
  }
  if (work_ != nullptr && !work_->model().empty()) {
    services_.observers.metrics.CountModelJob(work_->model(), status.code(),
                                              work_->shape().RowsOf(TensorKind::kTiles));
  }
  NoteEnd(status);
  if (!status.ok()) return status;
  return std::move(report_);
}

absl::Status ServedJob::Try() {
  RETURN_IF_ERROR(Open());
  return Sizes().status();
}

absl::Status ServedJob::RunJob() {
  course_.Enter(JobPhase::kSizing);
  RETURN_IF_ERROR(ReserveQuota());
  if (!PlansFast(spec(), 1)) {
    RETURN_IF_ERROR(services_.cluster.scheduler.CheckRoom(caller_.turns));
  }
  ASSIGN_OR_RETURN(std::vector<JobSize> sizes, Sizes());
  absl::StatusOr<v1::Report> executed = RunOnWorkers(std::move(sizes));
  if (!executed.ok()) {
    NoteUndecided();
    return executed.status();
  }
  report_ = *std::move(executed);
  // After the workers are free: the disk may be slow.
  const Clock::time_point begun = Now();
  RETURN_IF_ERROR(rows_->Commit(client_.stop()));
  report_.set_send_seconds(report_.send_seconds() + SecondsBetween(begun, Now()));
  CompleteReport();
  return absl::OkStatus();
}

absl::StatusOr<v1::Report> ServedJob::RunOnWorkers(std::vector<JobSize> sizes) {
  job_.emplace(open_, *work_, *rows_, services_.memory.orders, course_);
  job_->number = services_.cluster.suspects.NumberJob();
  job_->traceparent = traceparent_;
  RETURN_IF_ERROR(ReserveOrder());
  RETURN_IF_ERROR(Prepare());
  auto place = services_.cluster.scheduler.Enter(
      {.caller = caller_.turns, .sizes = std::move(sizes), .takes = [this](const Member& member) {
         return CanRunOn(member);
       }});
  if (!place.ok()) return place.status();
  course_.Enter(JobPhase::kQueued);
  RETURN_IF_ERROR(AwaitWorkers(*place));
  seconds_.queue = SecondsBetween(course_.opened(), Now());
  while (true) {
    bool retry = false;
    auto report = Execute(retry);
    const absl::Status& status = report.status();
    if (status.ok() || !client_.stop().why().ok() || !retry) return report;
    if (std::ssize(failures_) > services_.limits.settings.max_retries) {
      return wire::WithReason(absl::Status(status.code(), absl::StrCat(status.message(), "; tried ",
                                                                       failures_.size(), " times")),
                              wire::ReasonOf(status));
    }
    services_.observers.metrics.CountRetry(wire::ReasonOf(status));
    spdlog::warn("job {} is tried again: {}", open_.job_id(), std::string(status.message()));
    course_.Enter(JobPhase::kQueued);
    // A mount may hang. Other jobs keep their workers, which have their rows.
    if (rows_->InFiles()) place->GiveBack();
    RETURN_IF_ERROR(Prepare());
    RETURN_IF_ERROR(AwaitOthers(*place));
  }
}

// Runs without workers: a mount that hangs holds this thread alone.
absl::Status ServedJob::Prepare() {
  return rows_->Prepare([this](const ClientMessage& message) {
    const v1::Chunk& chunk = message.request.chunk();
    if (!ComesAhead(chunk.tensor())) return work_->CheckChunk(chunk, message.payload);
    RETURN_IF_ERROR(job_->input.Begin());
    return job_->Accept(message);
  });
}

absl::StatusOr<v1::Report> ServedJob::Execute(bool& retry) {
  if (!grant_.express()) services_.cluster.membership.SetJob(grant_.members, open_.job_id());
  live_before_ = services_.cluster.membership.Live().size();
  JobExecution execution(
      {.services = services_, .client = client_, .job = *job_, .plan = *plan_, .grant = grant_});
  absl::StatusOr<v1::Report> report = execution.Run();
  if (!grant_.express()) services_.cluster.membership.SetJob(grant_.members, "");
  services_.observers.metrics.CountExecution(report.status().code());
  if (report.ok()) {
    services_.cluster.membership.Worked(grant_.members);
    NoteSuccess();
  } else {
    retry = Judge(execution.failure());
  }
  return report;
}

bool ServedJob::Judge(const Failure& failure) {
  const auto fits_without = [&](const std::shared_ptr<const Member>& worker) {
    Members without = LeftOut();
    without.push_back(worker);
    return SizesWithout(without).ok();
  };
  const Verdict verdict = Decide(failure, failures_, fits_without);
  failures_.push_back(failure);
  if (verdict.without == nullptr) return verdict.retry;
  (failure.kind == FailureKind::kStall ? hung_ : failed_).push_back(verdict.without);
  if (verdict.backs_off_now) {
    services_.cluster.membership.Failed(*verdict.without, Why(failure.status));
  } else {
    std::erase_if(undecided_, [&](const auto& one) { return one.first == verdict.without; });
    undecided_.emplace_back(verdict.without, failure.status);
  }
  return verdict.retry;
}

void ServedJob::NoteSuccess() {
  for (const auto& [worker, error] : undecided_) {
    if (std::ranges::find(grant_.members, worker) != grant_.members.end()) continue;
    services_.cluster.membership.Failed(*worker, Why(error));
  }
}

// The job may be at fault, except that a worker must have the memory that it reports.
void ServedJob::NoteUndecided() {
  for (const auto& [worker, error] : undecided_) {
    if (LacksWhatItHas(error)) services_.cluster.membership.NoteFailure(*worker, Why(error));
  }
}

std::string ServedJob::Why(const absl::Status& status) const {
  return absl::StrCat("job ", open_.job_id(), ": ", status.message());
}

// Waits for the news which worker is lost, then a moment for a worker in its place, which
// finds the rows, then until live workers can hold the job.
absl::Status ServedJob::AwaitOthers(Scheduler::Place& place) {
  const Clock::time_point start = Now();
  const auto lost = [this] {
    return std::ranges::any_of(
        grant_.members, [](const auto& member) { return member->departed.stop_requested(); });
  };
  const auto replaced = [this] {
    return services_.cluster.membership.Live().size() >= live_before_;
  };
  while (true) {
    const int64_t seen = services_.cluster.membership.changes();
    const Deadline limit = start + (lost() ? kReplacementLimit : kNewsLimit);
    if (Now() >= limit || (lost() && replaced())) break;
    RETURN_IF_ERROR(services_.cluster.membership.AwaitChange(seen, limit, client_.stop()));
  }
  asked_.clear();
  return AwaitWorkers(place);
}

// Workers may come and go. Too few workers are waited for until recovery_timeout, busy ones until
// queue_timeout.
absl::Status ServedJob::AwaitWorkers(Scheduler::Place& place) {
  const Deadline turn = Now() + services_.limits.settings.queue_timeout;
  Deadline enough = Now() + services_.limits.settings.recovery_timeout;
  while (true) {
    if (asked_.empty()) {
      const int64_t seen = services_.cluster.membership.changes();
      auto sizes = Sizes();
      if (!sizes.ok()) {
        place.GiveBack();
        if (course_.phase() != JobPhase::kWaitingForWorkers)
          course_.Enter(JobPhase::kWaitingForWorkers);
        if (Now() >= enough) {
          return wire::ErrorOf(
              wire::reason::kNoWorkers,
              absl::StrCat("workers were lost, and the live ones could not take the job within ",
                           services_.limits.settings.recovery_timeout.count(),
                           " ms: ", sizes.status().message()));
        }
        RETURN_IF_ERROR(services_.cluster.membership.AwaitChange(seen, enough, client_.stop()));
        continue;
      }
      place.WaitAgain(*std::move(sizes), LeftOut());
      if (course_.phase() == JobPhase::kWaitingForWorkers) course_.Enter(JobPhase::kQueued);
    }
    enough = Now() + services_.limits.settings.recovery_timeout;
    absl::Status status = AwaitGrant(place, std::min(turn, Now() + kTurnLimit));
    // A place that left the queue for another reason is final.
    const bool late = wire::HasReason(status, wire::reason::kQueueTimeout);
    if (!late || Now() >= turn) return status;
    if (asked_ != services_.cluster.membership.Live()) asked_.clear();
  }
}

absl::Status ServedJob::AwaitGrant(Scheduler::Place& place, Deadline deadline) {
  auto grant = place.Await(client_.stop(), deadline, [this](int before) {
    const bool known = std::exchange(position_, before) == before;
    if (known || (job_ && job_->admitted)) return;
    v1::AttendResponse response;
    response.mutable_queued()->set_position(before);
    client_.Offer(response);  // a client that does not read must not keep workers
  });
  if (!grant.ok()) return grant.status();
  grant->members = InOldRanks(grant_.members, std::move(grant->members));
  grant_ = *std::move(grant);
  client_.ReadAhead();  // rows come while the execution begins
  auto plan = MakePlanner()(static_cast<int>(grant_.members.size()));
  if (!plan.ok()) return wire::WithReason(plan.status(), wire::reason::kInvalidSpec);
  plan_ = *std::move(plan);
  spdlog::debug(
      "job {} starts: {} tokens, {} heads, {} branches on {} workers{}, {} exchange steps",
      open_.job_id(), spec().tokens, spec().heads, spec().branches.size(), grant_.members.size(),
      grant_.express() ? " (express)" : "", plan_->costs.steps);
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
