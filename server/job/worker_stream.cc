#include "server/job/worker_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/job/failure_policy.h"
#include "server/job/job_run.h"
#include "server/process/tokens.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kKeepaliveInterval = std::chrono::seconds(10);
// In this time the reader finds the reason of a failed write.
constexpr auto kReasonLimit = std::chrono::seconds(5);

constexpr char kMethod[] = "/hilbert_ring.v1.WorkerService/Run";

}  // namespace

WorkerStream::WorkerStream(const RunParts& parts, int rank, JobRun& run, JobStop& stop)
    : parts_(parts),
      rank_(rank),
      run_(run),
      stop_(stop),
      cancel_(stop.token(), [this] { context_.TryCancel(); }),
      pool_(MostPayloadBytes(parts.plan.rows, MostRows(parts.plan.spec))),
      replies_({.read = !parts.job.rows.InFiles()}),
      departed_(member().departed.get_token(), [this] { NoteDeparted(); }) {}

// A worker that has done its part may leave.
void WorkerStream::NoteDeparted() {
  if (member().left_in_order || replies().ended) return;
  stop_.Request(LostWorker(member().address, "its heartbeats or its connection ended"));
}

absl::Status WorkerStream::Make() {
  sent_at_ = Now();
  if (absl::Status status = MakeShard(); !status.ok()) {
    return wire::WithReason(status, wire::reason::kHeldRowsMemory);
  }
  if (offered() && !parts_.job.rows.InFiles()) {
    forwarder_.emplace(OutputRows(parts_.plan, rank_, SourceOf(rows()), parts_.job.open.want_lse(),
                                  parts_.job.delivered),
                       shard_.memory, parts_.services.memory.threads, run_, rank_, stop_);
  } else if (!offered()) {
    shares_ = false;
  }
  return absl::OkStatus();
}

void WorkerStream::Begin() {
  AddCallToken(context_, member().secret, "Run");
  context_.set_initial_metadata_corked(true);  // leaves with RunOpen
  sent_at_ = Now();
}

v1::RunRequest WorkerStream::OpenRequest(uint64_t run, const Delivered& delivered) const {
  v1::RunRequest request;
  v1::RunOpen& open = *request.mutable_open();
  open.set_job_id(parts_.job.open.job_id());
  parts_.job.work.Describe(open);
  for (const ShardRange& range : parts_.plan.shards.ranges()) {
    v1::ShardRange& part = *open.add_shards();
    part.set_begin(range.begin);
    part.set_end(range.end);
    part.set_rank(range.rank);
  }
  open.set_rank(rank_);
  open.set_workers(parts_.plan.shards.workers());
  if (parts_.ring != nullptr) {
    open.set_ring_id(parts_.ring->ring_id());
    open.set_generation(parts_.ring->generation());
  }
  open.set_want_lse(parts_.job.open.want_lse());
  open.set_lane(parts_.grant.lane);
  open.set_traceparent(parts_.job.traceparent);
  open.set_want_trace(parts_.job.open.want_trace());
  open.set_run(run);
  open.set_compute_timeout_ms(parts_.settings().job_timeout.count());
  parts_.job.rows.AddTo(open);
  if (offered()) *open.mutable_shared_memory() = shard_.memory->offer();
  // Also for an offered shard, which the worker may turn down.
  for (const TensorKind tensor : kOutputKinds) {
    if (delivered.of(tensor).count() == 0) continue;
    v1::DeliveredRows& rows = *open.add_delivered();
    rows.set_tensor(wire::TensorOf(tensor));
    for (const auto& [begin, end] : delivered.of(tensor).ranges()) {
      v1::SlotRange& range = *rows.add_slots();
      range.set_begin(begin);
      range.set_end(end);
    }
  }
  return request;
}

// If the message does not leave, the stream's end gives the reason.
void WorkerStream::Open(uint64_t run, const Delivered& delivered) {
  Begin();
  call_ = wire::OpenRawStream(*member().channel, kMethod, context_);
  WriteNow(wire::Serialize(OpenRequest(run, delivered)), {});
  reader_ = parts_.services.memory.threads.Start([this] { Read(); });
}

void WorkerStream::OpenWithRows(uint64_t run) {
  Begin();
  NoteFinished();
  v1::RunRequest request = OpenRequest(run, parts_.job.delivered);
  request.mutable_open()->set_rows_there(true);
  polled_.emplace(*member().channel, kMethod, context_);
  WriteNow(wire::Serialize(request), {});
}

void WorkerStream::Settle() {
  if (!shares_) shares_ = replies().shares;
}

bool WorkerStream::WriteNow(const grpc::ByteBuffer& message, grpc::WriteOptions options) {
  writing_since_ = Now().time_since_epoch();
  const bool written = polled_ ? polled_->Write(message, options) : call_->Write(message, options);
  writing_since_ = kNoWrite;
  return written;
}

Clock::duration WorkerStream::WritingFor(Clock::time_point now) const {
  const Clock::duration since = writing_since_;
  return since == kNoWrite ? Clock::duration(0) : now.time_since_epoch() - since;
}

absl::Status WorkerStream::Write(const grpc::ByteBuffer& message, grpc::WriteOptions options) {
  sent_at_ = Now();
  if (WriteNow(message, options)) return absl::OkStatus();
  // The reader finds the reason, unless the worker ended the stream well.
  parts_.time().AwaitStop(stop_.token(), Now() + kReasonLimit);
  run_.Fail(FailureKind::kWorker, rank_,
            LostWorker(member().address, "its stream ended while rows were sent"));
  return stop_.why();
}

absl::Status WorkerStream::SendOrder(const RowRouter& router) {
  if (!takes_messages()) {
    router.WriteOrder(rank_, rows());
    return absl::OkStatus();
  }
  absl::Status status;
  router.SendOrder(rank_, pool_, [&](const grpc::ByteBuffer& part) {
    status = Write(part);
    return status.ok();
  });
  return status;
}

// Not before Settle: the worker may turn the memory down. FinishRows reports all rows then.
absl::Status WorkerStream::SendArrived() {
  if (shares_ != true || arrived_->prefix() == sent_prefix_) return absl::OkStatus();
  sent_prefix_ = arrived_->prefix();
  if (sent_prefix_ == rows().rows()) return absl::OkStatus();  // FinishRows reports it
  v1::RunRequest request;
  request.mutable_arrived()->set_rows(sent_prefix_);
  return Write(wire::Serialize(request));
}

absl::Status WorkerStream::SendKeepalive(Clock::time_point now) {
  if (now - sent_at_ < kKeepaliveInterval) return absl::OkStatus();
  v1::RunRequest request;
  request.mutable_elsewhere();
  return Write(wire::Serialize(request));
}

void WorkerStream::NoteFinished() {
  const MutexLock lock(mutex_);
  finished_ = Now();
}

absl::Status WorkerStream::FinishRows() {
  if (polled_ && !takes_messages()) return absl::OkStatus();
  NoteFinished();
  v1::RunRequest request;
  request.mutable_done();
  return Write(wire::Serialize(request), grpc::WriteOptions().set_last_message());
}

void WorkerStream::CancelUnlessEnded() {
  if (!replies().ended) context_.TryCancel();
}

void WorkerStream::Join() {
  if (reader_.joinable()) reader_.Join();
  while (polled_ && !replies().ended) Poll(std::chrono::system_clock::time_point::max());
}

HeldShard WorkerStream::Release() {
  forwarder_.reset();
  return std::move(shard_);
}

void WorkerStream::Note(absl::FunctionRef<void(WorkerReplies&)> change) {
  {
    const MutexLock lock(mutex_);
    change(replies_);
  }
  run_.Changed();
}

void WorkerStream::Read() {
  RunMessage<v1::RunResponse> message;
  absl::Status status;
  while (status.ok() && call_->Read(&message.buffer)) status = Handle(message);
  EndReading(status);
}

void WorkerStream::Poll(std::chrono::system_clock::time_point until) {
  if (replies().ended) return;
  absl::Status status;
  switch (polled_->Read(polled_message_.buffer, until)) {
    case wire::PolledStream::Got::kNothing:
      return;
    case wire::PolledStream::Got::kMessage:
      status = Handle(polled_message_);
      if (status.ok()) return;
      break;
    case wire::PolledStream::Got::kEnd:
      break;
  }
  EndReading(status);
}

void WorkerStream::EndReading(const absl::Status& status) {
  if (!status.ok()) {
    // Other errors have requested the stop themselves.
    if (absl::IsInternal(status)) run_.Fail(FailureKind::kWorker, rank_, status);
    stop_.Request(status);
    context_.TryCancel();
  }
  const grpc::Status ended = polled_ ? polled_->Finish() : call_->Finish();
  if (!ended.ok() || !replies().reported) run_.Failed(rank_, ended);
  if (forwarder_) forwarder_->End();
  Note([](WorkerReplies& replies) { replies.ended = true; });
}

absl::Status WorkerStream::Handle(RunMessage<v1::RunResponse>& message) {
  if (!Split(message)) {
    return absl::InternalError(
        absl::StrCat("worker ", member().address, " sent a message that is no RunResponse"));
  }
  v1::RunResponse& response = message.fields;
  switch (response.message_case()) {
    case v1::RunResponse::kReady:
      HandleReady(response.ready().shares_memory());
      break;
    case v1::RunResponse::kProgress:
      run_.Progressed(rank_, response.progress());
      break;
    case v1::RunResponse::kOutput:
      return HandleOutput(message);
    case v1::RunResponse::kFinal:
      return forwarder_->Forward(response.final().rows());
    case v1::RunResponse::kRead:
      Note([](WorkerReplies& replies) { replies.read = true; });
      break;
    case v1::RunResponse::kComputed:
      HandleComputed(response.computed());
      break;
    case v1::RunResponse::kFailed:
      run_.Failed(rank_, StatusOf(response.failed()));
      return stop_.why();
    case v1::RunResponse::kPooled:
      run_.Forwarding(rank_, false);
      parts_.job.work.TakePooled(rank_, response.pooled());
      break;
    case v1::RunResponse::kFigures:
      TakeFigures(*response.mutable_figures());
      break;
    case v1::RunResponse::kWhole:
      return HandleWhole(*response.mutable_whole());
    case v1::RunResponse::MESSAGE_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

void WorkerStream::HandleReady(bool shares_memory) {
  if (!shares_memory) forwarder_.reset();
  Note([shares_memory](WorkerReplies& replies) {
    replies.shares = shares_memory;
    replies.ready = true;
  });
}

void WorkerStream::TakeFigures(v1::WorkerReport& figures) {
  const MutexLock lock(mutex_);
  report_ = std::move(figures);
  report_.set_worker(member().address);
  replies_.reported = true;
}

absl::Status WorkerStream::HandleWhole(v1::RunWhole& whole) {
  HandleReady(true);
  HandleComputed(whole.computed());
  TakeFigures(*whole.mutable_figures());
  return forwarder_->Forward(parts_.plan.ShardsOf(TensorKind::kOut).Rows(rank_));
}

// Copies the payload to memory of its own: the one before may still be on its way to the client.
absl::Status WorkerStream::HandleOutput(const RunMessage<v1::RunResponse>& message) {
  const auto most = MostPayloadBytes(parts_.plan.rows, MostRows(parts_.plan.spec));
  if (message.payload.bytes() > most) {
    return absl::InternalError(absl::StrCat("worker ", member().address, " sent ",
                                            message.payload.bytes(),
                                            " bytes of outputs in a message, the limit is ", most));
  }
  const std::shared_ptr<char[]> buffer = pool_.Take();
  wire::PayloadReader(message.payload).Read(buffer.get(), message.payload.bytes());
  const std::string_view payload(buffer.get(), static_cast<size_t>(message.payload.bytes()));
  v1::OutputChunk chunk = message.fields.output();
  chunk.clear_payload();
  if (const uint32_t crc = wire::Crc32c(payload); crc != chunk.crc32c()) {
    return absl::InternalError(absl::StrCat("worker ", member().address, " sent rows of ",
                                            wire::TensorName(chunk.tensor()), " with crc32c ",
                                            absl::Hex(chunk.crc32c(), absl::kZeroPad8),
                                            ", theirs is ", absl::Hex(crc, absl::kZeroPad8)));
  }
  run_.Forwarding(rank_, true);
  const absl::StatusOr<bool> handed =
      run_.Output(rank_, chunk, payload, buffer, message.fields.first_slot(), kAnyPatience);
  run_.Forwarding(rank_, false);
  return handed.status();
}

void WorkerStream::HandleComputed(const v1::RunComputed& computed) {
  if (replies().computed) return;
  const Clock::time_point now = Now();
  Note([&](WorkerReplies& replies) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    replies.computed = replies.read = true;
    if (computed.seconds() > 0 && finished_ != Clock::time_point()) {
      replies.compute_seconds = std::min(computed.seconds(), SecondsBetween(finished_, now));
    }
  });
}

WorkerReplies WorkerStream::replies() const {
  const MutexLock lock(mutex_);
  return replies_;
}

v1::WorkerReport WorkerStream::report() const {
  const MutexLock lock(mutex_);
  return report_;
}

Clock::duration WorkerStream::ComputingFor(Clock::time_point now) const {
  const MutexLock lock(mutex_);
  return finished_ == Clock::time_point() ? Clock::duration(0) : now - finished_;
}

}  // namespace hilbert_ring::server
