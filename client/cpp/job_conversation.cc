#include "client/cpp/job_conversation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/protocol_error.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/transport.h"

namespace hilbert_ring::client {

JobConversation::JobConversation(const JobRequest& request, const JobOptions& options,
                                 AttemptName name, ProgressTeller& progress)
    : request_(request),
      options_(options),
      name_(std::move(name)),
      progress_(progress),
      bytes_left_(request.tensors.input_bytes()),
      again_(request.tensors) {
  for (const OutputTensor& output : request.tensors.outputs) {
    outputs_.try_emplace(output.tensor, output);
  }
}

v1::AttendRequest JobConversation::Open() {
  // Short input follows at once, without waiting for Admitted.
  const bool eager = !request_.by_reference() && bytes_left_ <= wire::kLookaheadBytes;
  if (eager) BeginInput(wire::kMaxPayloadBytes);
  v1::AttendRequest request;
  v1::Open& open = *request.mutable_open();
  open = request_.open;
  open.set_want_trace(options_.want_trace);
  open.set_job_id(name_.job_id);
  open.set_attempt(name_.attempt);
  open.set_can_resend(options_.can_resend);
  open.set_input_follows(eager);
  open.set_one_answer(eager);
  return request;
}

absl::Status JobConversation::Handle(const v1::AttendResponse& response,
                                     const wire::Payload& payload) {
  switch (response.message_case()) {
    case v1::AttendResponse::kQueued:
      progress_.Update([&](JobProgress& progress) {
        progress.away = false;
        progress.jobs_before = response.queued().position();
      });
      return absl::OkStatus();
    case v1::AttendResponse::kAdmitted: {
      NoteAdmitted(response.admitted().workers());
      if (chunks_ || request_.by_reference()) return absl::OkStatus();
      const int64_t limit = response.admitted().max_payload_bytes();
      BeginInput(limit > 0 ? std::min(limit, wire::kMaxPayloadBytes) : wire::kMaxPayloadBytes);
      return absl::OkStatus();
    }
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
      return Place(response.output(), payload);
    case v1::AttendResponse::kReport: {
      if (!admitted_) NoteAdmitted(response.report().workers_size());
      for (const v1::OutputChunk& output : response.outputs()) {
        RETURN_IF_ERROR(Place(output, wire::Payload(output.payload())));
      }
      report_ = response.report();
      const MutexLock lock(mutex_);
      reported_ = true;
      return absl::OkStatus();
    }
    case v1::AttendResponse::kResend:
      return Resend(response.resend());
    default:
      return absl::OkStatus();  // of a newer service
  }
}

void JobConversation::NoteAdmitted(int workers) {
  admitted_ = true;
  progress_.Update([workers](JobProgress& progress) {
    progress.away = false;
    progress.admitted = true;
    progress.workers = workers;
  });
}

void JobConversation::BeginInput(int64_t max_payload_bytes) {
  // A row is never cut: if a chunk's limit is shorter, the chunk has one row.
  const int64_t payload = std::min(std::max(std::min(options_.chunk_bytes, max_payload_bytes),
                                            request_.tensors.Widest().row_bytes),
                                   max_payload_bytes);
  chunks_.emplace(request_.tensors, payload);
  buffers_.emplace(std::min(payload, request_.tensors.input_bytes()));
}

absl::Status JobConversation::Resend(const v1::Resend& resend) {
  if (!chunks_) return ProtocolError("a request for rows that lie in files");
  int64_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    bytes = again_.Add(resend);
  }
  progress_.Update([bytes](JobProgress& progress) { progress.bytes_to_send += bytes; });
  return absl::OkStatus();
}

absl::Status JobConversation::Place(const v1::OutputChunk& chunk, const wire::Payload& payload) {
  const auto output = outputs_.find(chunk.tensor());
  if (output == outputs_.end()) {
    return ProtocolError(
        absl::StrCat("output of ", wire::TensorName(chunk.tensor()), ", which was not requested"));
  }
  AssembledRows& rows = output->second;
  RETURN_IF_ERROR(rows.Place(chunk, payload));
  if (chunk.tensor() == request_.tensors.outputs.front().tensor) {
    progress_.Update([&rows](JobProgress& progress) { progress.rows_placed = rows.rows_placed(); });
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Report> JobConversation::Finish() {
  if (!report_) return ProtocolError("the stream ended well without a report");
  for (const OutputTensor& output : request_.tensors.outputs) {
    RETURN_IF_ERROR(outputs_.at(output.tensor).CheckComplete());
  }
  if (request_.tensors.outputs.empty()) return *std::move(report_);  // the service has counted
  const AssembledRows& first = outputs_.at(request_.tensors.outputs.front().tensor);
  report_->set_rows_not_finite(first.rows_not_finite());
  report_->set_first_row_not_finite(first.first_not_finite());
  return *std::move(report_);
}

Conversation::Sending JobConversation::sending() const {
  if (!chunks_) return Sending::kNothing;
  const MutexLock lock(mutex_);
  if (!reported_ && (bytes_left_ > 0 || !again_.empty())) return Sending::kRows;
  return reported_ || !options_.can_resend ? Sending::kEnd : Sending::kNothing;
}

// Rows requested again go before rows never sent.
absl::StatusOr<std::optional<Conversation::Message>> JobConversation::Next(
    const std::stop_token& /*over*/) {
  RETURN_IF_ERROR(chunks_->Check());
  ResendQueue::Rows again;
  {
    const MutexLock lock(mutex_);
    if (reported_) return std::nullopt;
    if (!again_.empty()) {
      again =
          again_.Take([this](const InputTensor& input) { return chunks_->RowsPerChunk(input); });
    }
  }
  grpc::WriteOptions options;
  if (again.input != nullptr) {
    chunks_->Cut(*again.input, again.range.first_row, again.range.rows, chunk_, payload_);
  } else if (chunks_->Next(chunk_, payload_)) {
    bytes_left_ -= static_cast<int64_t>(payload_.size());
    // Short input leaves together, and wakes the service once.
    const bool few = request_.tensors.input_bytes() <= wire::kLookaheadBytes;
    if (bytes_left_ > 0 && few) options.set_buffer_hint();
  }
  // A copy, because the transport may hold the message after the call.
  return Message{wire::JoinPayload(wire::kChunkFields, chunk_, {buffers_->Copy(payload_)}),
                 options};
}

void JobConversation::Sent() {
  const auto bytes = static_cast<int64_t>(payload_.size());
  if (request_.tensors.sent) {
    const int64_t begin = chunk_.first_row() * (bytes / chunk_.rows());
    request_.tensors.sent(chunk_.tensor(), begin, begin + bytes);
  }
  progress_.Update([bytes](JobProgress& progress) { progress.bytes_sent += bytes; });
}

}  // namespace hilbert_ring::client
