#include "server/job/job_execution.h"

#include <algorithm>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/peer_error.h"
#include "engine/base/return_if_error.h"
#include "server/cluster/call_members.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kComputeSlack = std::chrono::seconds(30);

constexpr int64_t kFewBytes = 1 << 20;

// A trace is long, and leaves in the report's message.
JobClient::SendMode SendModeOf(const v1::Open& open) {
  return open.input_follows() && !open.want_trace() ? JobClient::SendMode::kWithReport
                                                    : JobClient::SendMode::kWithNext;
}

bool NoCoordinates(const JobSpec& spec) {
  return !spec.ordering || spec.ordering->coordinate_axes == 0;
}

// The member that the payload names. Null if a member has left: the ring failed because of that.
std::shared_ptr<const Member> Named(const absl::Status& error, const char* payload,
                                    const Members& members) {
  const auto address = error.GetPayload(payload);
  std::shared_ptr<const Member> found;
  for (const auto& member : members) {
    if (member->departed.stop_requested()) return nullptr;
    if (address && *address == absl::string_view(member->address)) found = member;
  }
  return found;
}

}  // namespace

JobExecution::JobExecution(const JobServices& services, JobClient& client, JobRecord& job,
                           const Plan& plan, const Grant& grant)
    : services_(services),
      client_(client),
      job_(job),
      plan_(plan),
      members_(grant.members),
      lane_(grant.lane) {}

absl::StatusOr<ExecutionFigures> JobExecution::Run() {
  auto figures = Execute();
  failure_.status = figures.status();
  return figures;
}

absl::StatusOr<ExecutionFigures> JobExecution::Execute() {
  const std::stop_callback client_gone(client_.stop().token(),
                                       [this] { stop_.Request(client_.stop().why()); });
  Enter(JobPhase::kRing);
  std::optional<Rings::Lease> ring;
  if (plan_.costs.steps > 0) {
    const Clock::time_point start = Now();
    auto lease = services_.cluster.rings.Take(members_, job_.open.job_id(), stop_);
    if (!lease.ok()) {
      if (absl::Status why = client_.stop().why(); !why.ok()) return why;
      failure_ = NoRing(lease.status(), Now() - start);
      return failure_.status;
    }
    ring.emplace(*std::move(lease));
    figures_.ring_seconds = SecondsBetween(start, Now());
  }
  JobRun run(
      {.job_id = job_.open.job_id(),
       .plan = &plan_,
       .work = &job_.work,
       .members = members_,
       .ring_id = ring ? ring->ring_id() : "",
       .generation = ring ? ring->generation() : 0,
       .want_lse = job_.open.want_lse(),
       .want_trace = job_.open.want_trace(),
       .traceparent = job_.traceparent,
       .lane = lane_,
       .compute_timeout = services_.limits.settings.job_timeout,
       .stall_timeout = services_.limits.settings.stall_timeout,
       .share_memory = services_.limits.settings.share_memory,
       .shards = &services_.memory.shards,
       .threads = &services_.memory.threads,
       .copies = job_.rows.InFiles() ? nullptr : &services_.memory.copies,
       .held = &job_.held,
       .delivered = &job_.delivered,
       .rows = &job_.rows,
       .runs = &services_.cluster.runs,
       .time = &services_.observers.time,
       .output =
           [this](int rank, const v1::OutputChunk& chunk, std::string_view payload,
                  const std::shared_ptr<const void>& owner, Clock::duration patience) {
             return SendOutput(rank, chunk, payload, owner, patience);
           },
       .progress = [this](double fraction, int64_t layer) { SendProgress(fraction, layer); }},
      stop_);
  absl::Status status = RunWith(run);
  if (status.ok()) {
    if (ring) ring->Keep();
    figures_.ring_generation = ring ? ring->generation() : 0;
    figures_.workers = run.Reports();
    if (sent_) {
      Shift(figures_.workers, SecondsBetween(job_.course.opened(), run_opened_));
      sent_->AddTo(figures_.workers, job_.course.opened());
    }
    return std::move(figures_);
  }
  // Before the streams see it: the first reason counts.
  stop_.Request(status);
  job_.held = run.End();
  if (failure_.kind == FailureKind::kOther) failure_ = run.failure();
  if (job_.rows.InFiles()) job_.held = HeldRows();  // the next execution reads them again
  return stop_.why();
}

Failure JobExecution::NoRing(const absl::Status& why, Clock::duration took) const {
  if (wire::HasReason(why, wire::reason::kMixedTransports)) return {.status = why};
  const auto unreached = Named(why, kUnreached, members_);
  const auto reporter = Named(why, kComplainant, members_);
  const bool lacks_memory = absl::IsResourceExhausted(why);
  Failure failure{
      .status = lacks_memory ? why
                             : wire::ErrorOf(wire::reason::kWorkerLost,
                                             absl::StrCat("the workers' ring could not be formed: ",
                                                          why.message()))};
  if (unreached != nullptr || (reporter != nullptr && lacks_memory)) {
    failure.kind = FailureKind::kWorker;
    failure.worker = unreached != nullptr ? unreached : reporter;
  } else if (reporter != nullptr) {
    failure.kind = FailureKind::kRing;
    failure.slow = took > services_.limits.settings.worker_timeout;
    const auto peer = PeerOf(why);
    const bool there = peer && *peer < std::ssize(members_) && members_[*peer] != reporter;
    failure.reports = {{.by = reporter, .of = there ? members_[*peer] : nullptr}};
  }
  return failure;
}

absl::Status JobExecution::RunWith(JobRun& run) {
  for (const auto step : {&JobExecution::Start, &JobExecution::Receive, &JobExecution::Compute,
                          &JobExecution::Send, &JobExecution::Check}) {
    RETURN_IF_ERROR((this->*step)(run));
  }
  figures_.compute_seconds = run.compute_seconds();
  figures_.send_seconds =
      std::max(0.0, SecondsBetween(received_, Now()) - figures_.compute_seconds);
  return absl::OkStatus();
}

void JobExecution::Enter(JobPhase phase) {
  job_.course.Enter(phase, static_cast<int>(members_.size()));
}

absl::Status JobExecution::Start(JobRun& run) {
  Enter(JobPhase::kStarting);
  if (job_.open.want_trace()) sent_.emplace(static_cast<int>(members_.size()));
  run_opened_ = Now();
  job_.work.BeginExecution();
  const bool first = !std::exchange(job_.begun, true);
  few_ = first && !job_.rows.InFiles() && job_.work.shape().BytesOf(kInputKinds) <= kFewBytes;
  if (few_) send_mode_ = SendModeOf(job_.open);
  if (few_ && RowsComeFirst()) {
    run.Make();
    rows_first_ = run.MayOpenWithRows();
    one_answer_ = rows_first_ && FitsOneAnswer();
  }
  if (!rows_first_) run.Open();
  ready_due_ = Now() + job_.work.start_timeout();
  absl::Status status = first ? job_.input.Begin() : Resume();
  if (status.ok() && !few_) status = run.AwaitReady(ready_due_);
  return status.ok() && !rows_first_ ? Admit(stop_) : status;
}

// Then the worker gets RunOpen alone, and does not wait for the client: all rows have arrived.
bool JobExecution::RowsComeFirst() {
  return members_.size() == 1 && job_.open.input_follows() && job_.open.can_resend() &&
         job_.work.model().empty() && NoCoordinates(job_.spec) &&
         client_.AwaitArrived(job_.work.shape().BytesOf(kInputKinds), JobClient::Input::kFollows);
}

// Whether all messages may be in the report's: outputs are few, and no check is due.
bool JobExecution::FitsOneAnswer() const {
  return job_.open.one_answer() && send_mode_ == JobClient::SendMode::kWithReport && !job_.check &&
         job_.work.shape().BytesOf(kOutputKinds) <= JobClient::kMostHeldBytes;
}

absl::Status JobExecution::Compute(JobRun& run) {
  Enter(JobPhase::kComputing);
  return run.AwaitComputed(received_ + services_.limits.settings.job_timeout + kComputeSlack);
}

absl::Status JobExecution::Send(JobRun& run) {
  Enter(JobPhase::kSending);
  NoteSent(0);  // counts rows of earlier executions
  RETURN_IF_ERROR(run.AwaitEnd());
  RETURN_IF_ERROR(SendResults());
  // The last output may be part of a shard, whose memory is in use until the client takes it.
  return client_.AwaitTaken(stop_);
}

absl::Status JobExecution::SendResults() {
  return job_.work.SendResults([this](const v1::OutputChunk& chunk, std::string_view payload,
                                      const std::shared_ptr<const void>& owner) {
    job_.bytes_sent += static_cast<int64_t>(payload.size());
    services_.observers.metrics.AddSent(static_cast<int64_t>(payload.size()));
    return client_.Write(chunk, payload, owner, kAnyPatience, stop_, JobClient::SendMode::kNow)
        .status();
  });
}

absl::Status JobExecution::Admit(const JobStop& stop) {
  if (job_.admitted) return absl::OkStatus();
  v1::AttendResponse response;
  v1::Admitted& admitted = *response.mutable_admitted();
  admitted.set_job_id(job_.open.job_id());
  admitted.set_max_payload_bytes(wire::kMaxPayloadBytes);
  admitted.set_workers(static_cast<int>(members_.size()));
  absl::Status status = client_.Write(response, stop);
  job_.admitted = status.ok();
  return status;
}

absl::Status JobExecution::Check(JobRun& run) {
  Enter(JobPhase::kChecking);
  if (!job_.check) return absl::OkStatus();
  const std::vector<HostShard> shards = run.Shards();
  if (shards.empty()) {
    if (job_.rows.InFiles()) {
      figures_.check_note =
          "--check-rows: no row was computed again because the workers read and wrote files where "
          "the coordinator does not see their memory";
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(job_.rows.ReadBack(*job_.check, [this](int64_t token) {
    return members_[router_->Find(v1::TENSOR_Q, token).rank];
  }));
  std::shared_ptr<const Permutation> order = job_.input.order();
  if (order == nullptr) {
    ASSIGN_OR_RETURN(order, Permutation::Make(job_.spec, {}));
  }
  ASSIGN_OR_RETURN(const auto verdict, job_.check->Compare(*router_, *order, shards, stop_));
  services_.observers.metrics.CountRowsChecked(verdict.judged);
  services_.observers.metrics.CountRowsNotJudged(verdict.not_judged);
  if (!verdict.mismatch) {
    figures_.rows_checked = verdict.judged;
    figures_.rows_not_judged = verdict.not_judged;
    return absl::OkStatus();
  }
  const RowCheck::Mismatch& wrong = *verdict.mismatch;
  services_.observers.metrics.CountMismatch(wrong.worker->address);
  const bool quarantined = services_.cluster.suspects.Note(wrong.worker, job_.number);
  return wire::ErrorOf(
      wire::reason::kRowMismatch,
      absl::StrCat(
          wrong.What(), " (--check-rows); worker ", wrong.worker->address,
          quarantined ? " sent it, not for the first time, and gets no more jobs" : " sent it"));
}

absl::StatusOr<bool> JobExecution::SendOutput(int rank, const v1::OutputChunk& chunk,
                                              std::string_view payload,
                                              const std::shared_ptr<const void>& owner,
                                              Clock::duration patience) {
  const Clock::time_point begun = sent_ ? Now() : Clock::time_point();
  absl::StatusOr<bool> handed = job_.rows.Take(chunk, payload, owner, patience, stop_, send_mode_);
  if (!handed.ok() || !*handed) return handed;
  if (sent_) sent_->Add(rank, begun, Now());
  job_.bytes_sent += static_cast<int64_t>(payload.size());
  if (job_.check) job_.check->Take(chunk, payload, members_[rank]);
  services_.observers.metrics.AddSent(static_cast<int64_t>(payload.size()));
  if (chunk.tensor() == v1::TENSOR_OUT || chunk.tensor() == v1::TENSOR_STATES) {
    NoteSent(chunk.rows());
  }
  return handed;
}

void JobExecution::NoteSent(int64_t rows) {
  const int64_t sent = job_.rows_sent += rows;
  job_.course.Advance(JobPhase::kSending,
                      static_cast<double>(sent) / static_cast<double>(job_.spec.tokens));
}

void JobExecution::SendProgress(double fraction, int64_t layer) {
  job_.course.Advance(JobPhase::kComputing, fraction);
  if (one_answer_ && !job_.admitted) return;  // its worker answers soon
  v1::AttendResponse response;
  response.mutable_progress()->set_phase(v1::Progress::PHASE_COMPUTE);
  response.mutable_progress()->set_fraction(fraction);
  response.mutable_progress()->set_layer(layer);
  client_.Offer(response);
}

}  // namespace hilbert_ring::server
