// Steps of an execution until its workers have all rows.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/job_execution.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// A report this fast saves the message Admitted. A job of 64 tokens on a shared worker takes less.
constexpr auto kAnswerLimit = std::chrono::milliseconds(20);

}  // namespace

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
    if (!said) RETURN_IF_ERROR(Admit(client_.stop()));
  }
  if (few_) {
    RETURN_IF_ERROR(run.AwaitReady(ready_due_));
    RETURN_IF_ERROR(run.SendAgain(*router_, job_.input));
  }
  RETURN_IF_ERROR(run.FinishRows());
  if (job_.rows.InFiles()) {
    const Clock::time_point start = Now();
    RETURN_IF_ERROR(run.AwaitRead());
    figures_.receive_seconds += SecondsBetween(start, Now());
  }
  received_ = Now();
  return absl::OkStatus();
}

absl::Status JobExecution::Resume() {
  absl::Status status = job_.rows.Resume(job_.input.Forget(job_.held.lost()));
  job_.held = HeldRows();  // the new shards have its rows
  return status;
}

absl::Status JobExecution::PlaceRows(JobRun& run) {
  router_.emplace(job_.work.shape(), plan_.shards, job_.input.order());
  RETURN_IF_ERROR(run.SendOrder(*router_));
  return run.SendHeld(*router_, job_.input);
}

absl::Status JobExecution::FeedRows(JobRun& run) {
  const Clock::time_point start = Now();
  // Saves this thread a wake-up for each message.
  if (few_ && !rows_first_) {
    client_.AwaitArrived(job_.work.shape().BytesOf(kInputKinds), JobClient::Input::kMayFollow);
  }
  const auto take = [&](const ClientMessage& message) { return TakeRows(message, run); };
  RETURN_IF_ERROR(job_.rows.Feed(job_.input, take, stop_));
  figures_.receive_seconds = SecondsBetween(start, Now());
  return absl::OkStatus();
}

absl::Status JobExecution::TakeRows(const ClientMessage& message, JobRun& run) {
  if (!message.request.has_chunk()) {
    return wire::ErrorOf(wire::reason::kInvalidOpen, "after Open a client sends chunks alone");
  }
  const v1::Chunk& chunk = message.request.chunk();
  services_.observers.metrics.AddReceived(message.payload.bytes());
  job_.bytes_received += message.payload.bytes();
  const Checksum checksum = message.checked ? Checksum::kChecked : Checksum::kToCheck;
  RETURN_IF_ERROR(job_.input.Accept(chunk, message.payload, checksum));
  RETURN_IF_ERROR(job_.work.CheckChunk(chunk, message.payload));
  job_.course.Advance(JobPhase::kReceiving, job_.input.fraction());
  if (chunk.tensor() != v1::TENSOR_COORDS) return run.Send(chunk, message.payload, *router_);
  if (!job_.input.order_known()) return absl::OkStatus();
  if (job_.order_memory != nullptr) job_.order_memory->Shrink(Coordinates::OrderBytes(job_.spec));
  return PlaceRows(run);
}

}  // namespace hilbert_ring::server
