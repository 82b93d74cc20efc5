#include "client/cpp/attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/call_end.h"
#include "client/cpp/cancel_watch.h"
#include "client/cpp/grpc_deadline.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::client {
namespace {

// Input that is not longer follows its Open at once, without waiting for Admitted.
constexpr int64_t kEagerBytes = wire::kLookaheadBytes;

}  // namespace

Attempt::Attempt(const JobRequest& request, const JobOptions& options, AttemptName name,
                 ProgressTeller& progress)
    : request_(request), options_(options), name_(std::move(name)), progress_(progress) {
  for (const OutputTensor& output : request.tensors.outputs) {
    outputs_.try_emplace(output.tensor, output);
  }
}

std::variant<v1::Report, AttemptFailure> Attempt::Run(const std::shared_ptr<grpc::Channel>& channel,
                                                      absl::Time deadline) {
  if (deadline < absl::InfiniteFuture()) context_.set_deadline(GrpcDeadline(deadline));
  if (!options_.traceparent.empty()) context_.AddMetadata("traceparent", options_.traceparent);
  CancelWatch watch(options_.cancelled, context_);
  watch.Start();
  context_.set_initial_metadata_corked(true);  // leaves with Open
  stream_ = wire::OpenRawStream(*channel, request_.method, context_);
  stream_->Write(wire::Serialize(OpenRequest()));  // a failure shows in Finish
  absl::Status local;  // what we found wrong; the service knows the rest
  if (eager()) {
    local = MakeSender(wire::kMaxPayloadBytes);
    if (local.ok()) sender_->Send();
  }
  grpc::ByteBuffer message;
  while (local.ok() && stream_->Read(&message)) local = Handle(message);
  if (!local.ok()) context_.TryCancel();
  if (sender_) sender_->Join();
  const absl::Status remote = EndOf(stream_->Finish(), watch);
  if (local.ok() && remote.ok()) local = CheckComplete();
  if (!local.ok() || !remote.ok()) return Failure(local, remote);
  if (request_.tensors.outputs.empty()) return *std::move(report_);  // the service has counted
  const AssembledRows& first = outputs_.at(request_.tensors.outputs.front().tensor);
  report_->set_rows_not_finite(first.rows_not_finite());
  report_->set_first_row_not_finite(first.first_not_finite());
  return *std::move(report_);
}

bool Attempt::eager() const {
  return !request_.by_reference() && request_.tensors.input_bytes() <= kEagerBytes;
}

v1::AttendRequest Attempt::OpenRequest() const {
  v1::AttendRequest request;
  v1::Open& open = *request.mutable_open();
  open = request_.open;
  open.set_want_trace(options_.want_trace);
  open.set_job_id(name_.job_id);
  open.set_attempt(name_.attempt);
  open.set_can_resend(options_.can_resend);
  open.set_input_follows(eager());
  open.set_one_answer(eager());
  return request;
}

absl::Status Attempt::Handle(grpc::ByteBuffer& message) {
  v1::AttendResponse response;
  wire::Payload payload;
  if (wire::SplitPayload(message, wire::kOutputFields, *response.mutable_output(), payload)) {
    return Place(response.output(), payload);
  }
  if (!wire::Parse(message, response)) return ProtocolError("a message that is malformed");
  return Handle(response);
}

absl::Status Attempt::Handle(const v1::AttendResponse& response) {
  switch (response.message_case()) {
    case v1::AttendResponse::kQueued:
      progress_.Update([&](JobProgress& progress) {
        progress.away = false;
        progress.jobs_before = response.queued().position();
      });
      return absl::OkStatus();
    case v1::AttendResponse::kAdmitted:
      return Admit(response.admitted());
    case v1::AttendResponse::kProgress:
      progress_.Update([&](JobProgress& progress) {
        const double fraction = response.progress().fraction();
        if (response.progress().phase() == v1::Progress::PHASE_COMPUTE && fraction >= 0 &&
            fraction <= 1) {
          progress.compute_fraction = fraction;
        }
        progress.layer = std::max(progress.layer, response.progress().layer());
      });
      return absl::OkStatus();
    case v1::AttendResponse::kOutput:
      return Place(response.output(), wire::Payload(response.output().payload()));
    case v1::AttendResponse::kReport:
      if (!admitted_) NoteAdmitted(response.report().workers_size());
      for (const v1::OutputChunk& output : response.outputs()) {
        RETURN_IF_ERROR(Place(output, wire::Payload(output.payload())));
      }
      report_ = response.report();
      if (sender_) sender_->Close();
      return absl::OkStatus();
    case v1::AttendResponse::kResend:
      if (!sender_) return ProtocolError("rows asked for again that lie in files");
      sender_->Resend(response.resend());
      return absl::OkStatus();
    default:
      break;  // a kind of message that is newer than this client
  }
  return absl::OkStatus();
}

absl::Status Attempt::Admit(const v1::Admitted& admitted) {
  NoteAdmitted(admitted.workers());
  if (sender_ || request_.by_reference()) return absl::OkStatus();
  int64_t limit = wire::kMaxPayloadBytes;
  if (admitted.max_payload_bytes() > 0) limit = std::min(limit, admitted.max_payload_bytes());
  RETURN_IF_ERROR(MakeSender(limit));
  sender_->StartThread();
  return absl::OkStatus();
}

void Attempt::NoteAdmitted(int workers) {
  admitted_ = true;
  progress_.Update([workers](JobProgress& progress) {
    progress.away = false;
    progress.admitted = true;
    progress.workers = workers;
  });
}

absl::Status Attempt::MakeSender(int64_t max_payload_bytes) {
  // A row is never cut, so one that is longer than a chunk should be is sent as it is.
  const int64_t payload = std::min(std::max(std::min(options_.chunk_bytes, max_payload_bytes),
                                            request_.tensors.Widest().row_bytes),
                                   max_payload_bytes);
  sender_.emplace(request_.tensors,
                  SendSettings{.max_payload_bytes = payload, .can_resend = options_.can_resend},
                  *stream_, progress_);
  return sender_->Check();
}

absl::Status Attempt::Place(const v1::OutputChunk& chunk, const wire::Payload& payload) {
  const auto output = outputs_.find(chunk.tensor());
  if (output == outputs_.end()) {
    return ProtocolError(
        absl::StrCat("output of ", wire::TensorName(chunk.tensor()), ", which was not asked for"));
  }
  AssembledRows& rows = output->second;
  RETURN_IF_ERROR(rows.Place(chunk, payload));
  if (chunk.tensor() == request_.tensors.outputs.front().tensor) {
    progress_.Update([&rows](JobProgress& progress) { progress.rows_placed = rows.rows_placed(); });
  }
  return absl::OkStatus();
}

absl::Status Attempt::CheckComplete() const {
  if (!report_) return ProtocolError("the stream ended well without a report");
  for (const OutputTensor& output : request_.tensors.outputs) {
    RETURN_IF_ERROR(outputs_.at(output.tensor).CheckComplete());
  }
  return absl::OkStatus();
}

AttemptFailure Attempt::Failure(const absl::Status& local, const absl::Status& remote) const {
  if (!local.ok()) {
    return {.status = local, .admitted = admitted_, .output_damaged = absl::IsDataLoss(local)};
  }
  return {.status = remote, .admitted = admitted_, .pushback = PushbackOf(context_)};
}

}  // namespace hilbert_ring::client
