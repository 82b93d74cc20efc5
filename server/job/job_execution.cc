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

// A report this fast saves the message Admitted. A job of 64 tokens on a shared worker takes less.
constexpr auto kAnswerLimit = std::chrono::milliseconds(20);

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

absl::StatusOr<v1::Report> JobExecution::Run() {
  const std::stop_callback client_gone(parts_.client.stop().token(),
                                       [this] { stop_.Request(parts_.client.stop().why()); });
  Enter(JobPhase::kRing);
  std::optional<Rings::Lease> ring;
  if (parts_.plan.costs.steps > 0) {
    const Clock::time_point start = Now();
    auto lease = parts_.services.cluster.rings.Take(members(), job_.open.job_id(), stop_);
    if (!lease.ok()) {
      const absl::Status why = parts_.client.stop().why();
      failure_ = why.ok() ? NoRing(lease.status(), Now() - start) : Failure{.status = why};
      return failure_.status;
    }
    ring.emplace(*std::move(lease));
    report_.set_ring_seconds(SecondsBetween(start, Now()));
  }
  few_ = !job_.begun && !job_.rows.InFiles() && job_.work.shape().BytesOf(kInputKinds) <= kFewBytes;
  parts_.ring = ring ? &*ring : nullptr;
  parts_.send_mode = SendMode();
  JobRun run(parts_, stop_);
  absl::Status status = RunWith(run);
  if (status.ok()) {
    if (ring) ring->Keep();
    report_.set_ring_generation(ring ? ring->generation() : 0);
    for (v1::WorkerReport& worker : run.Reports()) *report_.add_workers() = std::move(worker);
    return std::move(report_);
  }
  // Before the streams see it: the first reason counts.
  stop_.Request(status);
  job_.held = run.End();
  if (job_.rows.InFiles()) job_.held = HeldRows();  // the next execution reads them again
  failure_ = run.failure();
  return failure_.status;
}

// A trace is long, and leaves in the report's message.
JobClient::SendMode JobExecution::SendMode() const {
  if (!few_) return JobClient::SendMode::kNow;
  return job_.open.input_follows() && !job_.open.want_trace() ? JobClient::SendMode::kWithReport
                                                              : JobClient::SendMode::kWithNext;
}

Failure JobExecution::NoRing(const absl::Status& why, Clock::duration took) const {
  if (wire::HasReason(why, wire::reason::kMixedTransports)) return {.status = why};
  const auto unreached = Named(why, kUnreached, members());
  const auto reporter = Named(why, kComplainant, members());
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
    failure.slow = took > parts_.settings().worker_timeout;
    const auto peer = PeerOf(why);
    const bool there = peer && *peer < std::ssize(members()) && members()[*peer] != reporter;
    failure.reports = {{.by = reporter, .of = there ? members()[*peer] : nullptr}};
  }
  return failure;
}

absl::Status JobExecution::RunWith(JobRun& run) {
  for (const auto step : {&JobExecution::Start, &JobExecution::Receive, &JobExecution::Compute,
                          &JobExecution::Send, &JobExecution::Check}) {
    RETURN_IF_ERROR((this->*step)(run));
  }
  report_.set_compute_seconds(run.compute_seconds());
  report_.set_send_seconds(
      std::max(0.0, SecondsBetween(received_, Now()) - report_.compute_seconds()));
  return absl::OkStatus();
}

void JobExecution::Enter(JobPhase phase) {
  job_.course.Enter(phase, static_cast<int>(members().size()));
}

absl::Status JobExecution::Start(JobRun& run) {
  Enter(JobPhase::kStarting);
  job_.work.BeginExecution();
  run.Make();
  rows_first_ = few_ && run.MayOpenWithRows() && RowsComeFirst();
  if (!rows_first_) run.Open();
  ready_due_ = Now() + job_.work.start_timeout();
  if (std::exchange(job_.begun, true)) {
    RETURN_IF_ERROR(job_.rows.Resume(job_.input.Forget(job_.held.lost())));
    job_.held = HeldRows();  // the new shards have its rows
  } else {
    RETURN_IF_ERROR(job_.input.Begin());
  }
  if (!few_) RETURN_IF_ERROR(run.AwaitReady(ready_due_));
  return rows_first_ ? absl::OkStatus() : Admit(stop_);
}

// Then the worker gets RunOpen alone, and does not wait for the client: all rows have arrived.
bool JobExecution::RowsComeFirst() {
  return job_.open.input_follows() && job_.open.can_resend() && job_.work.model().empty() &&
         !job_.work.has_coordinates() && !job_.work.has_bias_coordinates() &&
         parts_.client.AwaitArrived(job_.work.shape().BytesOf(kInputKinds),
                                    JobClient::Input::kFollows);
}

// Returns whether all messages may be in the report's: outputs are few, and no check is due.
bool JobExecution::FitsOneAnswer() const {
  return job_.open.one_answer() && parts_.send_mode == JobClient::SendMode::kWithReport &&
         !job_.check && job_.work.shape().BytesOf(kOutputKinds) <= JobClient::kMostHeldBytes;
}

absl::Status JobExecution::Receive(JobRun& run) {
  Enter(JobPhase::kReceiving);
  if (job_.input.order_known()) RETURN_IF_ERROR(PlaceRows(run));
  RETURN_IF_ERROR(FeedRows(run));
  if (rows_first_) {
    run.OpenWithRows();
    ready_due_ = Now() + job_.work.start_timeout();
    const bool said = FitsOneAnswer() && run.AnswersWithin(kAnswerLimit);
    // Not the execution's stop: a client counts an attempt even if the worker has failed. The first
    // message never waits for the client.
    if (!said) RETURN_IF_ERROR(Admit(parts_.client.stop()));
  }
  if (few_) {
    RETURN_IF_ERROR(run.AwaitReady(ready_due_));
    RETURN_IF_ERROR(run.SendAgain(*router_, job_.input));
  }
  RETURN_IF_ERROR(run.FinishRows());
  if (job_.rows.InFiles()) {
    const Clock::time_point start = Now();
    RETURN_IF_ERROR(run.AwaitRead());
    report_.set_receive_seconds(report_.receive_seconds() + SecondsBetween(start, Now()));
  }
  received_ = Now();
  return absl::OkStatus();
}

absl::Status JobExecution::PlaceRows(JobRun& run) {
  router_.emplace(job_.work.shape(), parts_.plan, job_.input.order(),
                  job_.input.bias_coordinates());
  RETURN_IF_ERROR(run.SendOrder(*router_));
  return run.SendHeld(*router_, job_.input);
}

absl::Status JobExecution::FeedRows(JobRun& run) {
  const Clock::time_point start = Now();
  // Saves this thread a wake-up for each message.
  if (few_ && !rows_first_) {
    parts_.client.AwaitArrived(job_.work.shape().BytesOf(kInputKinds),
                               JobClient::Input::kMayFollow);
  }
  const auto take = [&](const ClientMessage& message) { return TakeRows(message, run); };
  RETURN_IF_ERROR(job_.rows.Feed(job_.input, take, stop_));
  report_.set_receive_seconds(SecondsBetween(start, Now()));
  return absl::OkStatus();
}

absl::Status JobExecution::TakeRows(const ClientMessage& message, JobRun& run) {
  if (!message.request.has_chunk()) {
    return wire::ErrorOf(wire::reason::kInvalidOpen, "after Open a client sends chunks alone");
  }
  const v1::Chunk& chunk = message.request.chunk();
  parts_.services.observers.metrics.AddReceived(message.payload.bytes());
  job_.bytes_received += message.payload.bytes();
  RETURN_IF_ERROR(job_.Accept(message));
  RETURN_IF_ERROR(job_.work.CheckChunk(chunk, message.payload));
  job_.course.Advance(JobPhase::kReceiving, job_.input.fraction());
  if (!ComesAhead(chunk.tensor())) return run.Send(chunk, message.payload, *router_);
  return job_.input.order_known() ? PlaceRows(run) : absl::OkStatus();
}

absl::Status JobExecution::Compute(JobRun& run) {
  Enter(JobPhase::kComputing);
  return run.AwaitComputed(received_ + parts_.settings().job_timeout + kComputeSlack);
}

absl::Status JobExecution::Send(JobRun& run) {
  Enter(JobPhase::kSending);
  job_.NoteSent(0);  // counts rows of earlier executions
  RETURN_IF_ERROR(run.AwaitEnd());
  RETURN_IF_ERROR(SendResults());
  // The last output may be part of a shard, whose memory is in use until the client takes it.
  return parts_.client.AwaitTaken(stop_);
}

absl::Status JobExecution::SendResults() {
  return job_.work.SendResults([this](const v1::OutputChunk& chunk, std::string_view payload,
                                      const std::shared_ptr<const void>& owner) {
    job_.bytes_sent += static_cast<int64_t>(payload.size());
    parts_.services.observers.metrics.AddSent(static_cast<int64_t>(payload.size()));
    return parts_.client
        .Write(chunk, payload, owner, kAnyPatience, stop_, JobClient::SendMode::kNow)
        .status();
  });
}

absl::Status JobExecution::Admit(const JobStop& stop) {
  if (job_.admitted) return absl::OkStatus();
  v1::AttendResponse response;
  v1::Admitted& admitted = *response.mutable_admitted();
  admitted.set_job_id(job_.open.job_id());
  admitted.set_max_payload_bytes(wire::kMaxPayloadBytes);
  admitted.set_workers(static_cast<int>(members().size()));
  absl::Status status = parts_.client.Write(response, stop);
  job_.admitted = status.ok();
  return status;
}

absl::Status JobExecution::Check(JobRun& run) {
  Enter(JobPhase::kChecking);
  if (!job_.check) return absl::OkStatus();
  const std::vector<HostShard> shards = run.Shards();
  if (shards.empty()) {
    if (job_.rows.InFiles()) {
      report_.add_notes(
          "--check-rows: no row was computed again because the workers read and wrote files where "
          "the coordinator does not see their memory");
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(job_.rows.ReadBack(*job_.check, [this](int64_t token) {
    return members()[router_->Find(v1::TENSOR_Q, token).rank];
  }));
  std::shared_ptr<const Permutation> order = job_.input.order();
  if (order == nullptr) {
    ASSIGN_OR_RETURN(order, Permutation::Make(job_.spec, {}));
  }
  ASSIGN_OR_RETURN(const auto verdict, job_.check->Compare(*router_, *order, shards,
                                                           job_.input.bias_coordinates(), stop_));
  parts_.services.observers.metrics.CountRowsChecked(verdict.judged);
  parts_.services.observers.metrics.CountRowsNotJudged(verdict.not_judged);
  if (!verdict.mismatch) {
    report_.set_rows_checked(static_cast<int32_t>(verdict.judged));
    report_.set_rows_not_judged(static_cast<int32_t>(verdict.not_judged));
    return absl::OkStatus();
  }
  const RowCheck::Mismatch& wrong = *verdict.mismatch;
  parts_.services.observers.metrics.CountMismatch(wrong.worker->address);
  const bool quarantined = parts_.services.cluster.suspects.Note(wrong.worker, job_.number);
  return wire::ErrorOf(
      wire::reason::kRowMismatch,
      absl::StrCat(
          wrong.What(), " (--check-rows); worker ", wrong.worker->address,
          quarantined ? " sent it, not for the first time, and gets no more jobs" : " sent it"));
}

}  // namespace hilbert_ring::server
