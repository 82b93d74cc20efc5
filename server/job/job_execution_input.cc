// What an execution does until all rows are at its workers.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/job_execution.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Until the client of a small job is told that it is admitted: the report may come first. A person
// does not see so long a wait, and a job of 64 tokens that shares its worker takes less.
constexpr auto kAnswerLimit = std::chrono::milliseconds(20);

}  // namespace

absl::Status JobExecution::Receive(JobRun& run) {
  Enter(JobPhase::kReceiving);
  if (job_.files != nullptr) return ReadFiles(run);
  absl::Status status;
  if (job_.input.order_known()) status = PlaceRows(run);
  if (status.ok()) status = ReceiveRows(run);
  if (status.ok() && rows_first_) {
    run.OpenWithRows();
    ready_due_ = services_.time.Now() + job_.work.start_timeout();
    const bool said = one_answer_ && run.AnswersWithin(kAnswerLimit);
    // Said though its worker has failed: the client counts that as an attempt. It is the first
    // message, and so waits for nobody.
    if (!said) status = Admit(client_.stop());
  }
  if (status.ok() && few_) {
    status = run.AwaitReady(ready_due_);
    if (status.ok()) status = run.SendAgain(*router_, job_.input);
  }
  if (status.ok()) status = run.FinishRows();
  received_ = services_.time.Now();
  return status;
}

// By the workers, but for coordinates.
absl::Status JobExecution::ReadFiles(JobRun& run) {
  const Clock::time_point start = services_.time.Now();
  const auto take = [this](const v1::Chunk& chunk, const wire::Payload& payload) {
    // All of them, whatever becomes of this execution: the next one has the order then.
    if (chunk.tensor() == v1::TENSOR_COORDS) return job_.input.Accept(chunk, payload);
    RETURN_IF_ERROR(stop_.why());
    return job_.work.CheckChunk(chunk, payload);
  };
  if (!job_.input.order_known()) {
    RETURN_IF_ERROR(job_.files->ReadChunks(v1::TENSOR_COORDS, take));
    if (job_.order_memory != nullptr) job_.order_memory->Shrink(Coordinates::OrderBytes(job_.spec));
  }
  if (job_.work.shape().rows.Has(TensorKind::kTileCoords)) {
    RETURN_IF_ERROR(job_.files->ReadChunks(v1::TENSOR_TILE_COORDS, take));
  }
  RETURN_IF_ERROR(PlaceRows(run));
  RETURN_IF_ERROR(run.FinishRows());
  RETURN_IF_ERROR(run.AwaitRead());
  received_ = services_.time.Now();
  figures_.receive_seconds = SecondsBetween(start, received_);
  return absl::OkStatus();
}

absl::Status JobExecution::AskForLostRows() {
  for (const JobInput::Missing& missing : job_.input.Forget(job_.held.lost())) {
    if (!job_.open.can_resend()) {
      return wire::ErrorOf(
          wire::reason::kRowsLost,
          absl::StrCat(
              "rows of ", wire::TensorName(missing.tensor),
              " were lost with a worker, no copy is held (--copy-memory), and the client does not "
              "send rows again"));
    }
    v1::AttendResponse response;
    v1::Resend& resend = *response.mutable_resend();
    resend.set_attempt(job_.open.attempt());
    resend.set_tensor(missing.tensor);
    for (const RowSpan& tokens : missing.tokens) {
      v1::Resend::Range& range = *resend.add_ranges();
      range.set_first_row(tokens.begin);
      range.set_rows(tokens.end - tokens.begin);
    }
    // Said though this execution ends: the rows are forgotten, and no other one asks for them.
    RETURN_IF_ERROR(client_.Write(response, client_.stop()));
  }
  job_.held = HeldRows();  // what it had is carried, and its outputs are computed anew
  return absl::OkStatus();
}

// From here on rows have places.
absl::Status JobExecution::PlaceRows(JobRun& run) {
  router_.emplace(job_.work.shape(), plan_.shards, job_.input.order());
  RETURN_IF_ERROR(run.SendOrder(*router_));
  return run.SendHeld(*router_, job_.input);
}

// A client that can send rows again keeps its side open; the others close it behind the last row.
absl::Status JobExecution::ReceiveRows(JobRun& run) {
  const Clock::time_point start = services_.time.Now();
  ClientMessage message;
  // All at once: this thread then wakes once, and not for each message.
  if (few_ && !rows_first_) {
    client_.AwaitArrived(job_.work.shape().BytesOf(kInputKinds), JobClient::Input::kMayFollow);
  }
  while (!(job_.open.can_resend() || job_.retries > 0) || !job_.input.Complete()) {
    ASSIGN_OR_RETURN(const bool more, client_.Read(message, stop_));
    if (!more) break;
    RETURN_IF_ERROR(ReceiveChunk(message, run));
  }
  RETURN_IF_ERROR(job_.input.CheckComplete());
  figures_.receive_seconds = SecondsBetween(start, services_.time.Now());
  return absl::OkStatus();
}

absl::Status JobExecution::ReceiveChunk(const ClientMessage& message, JobRun& run) {
  if (!message.request.has_chunk()) {
    return wire::ErrorOf(wire::reason::kInvalidOpen, "after Open a client sends chunks alone");
  }
  const v1::Chunk& chunk = message.request.chunk();
  services_.metrics.AddReceived(message.payload.bytes());
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
