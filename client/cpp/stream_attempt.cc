#include "client/cpp/stream_attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/call_end.h"
#include "client/cpp/cancel_watch.h"
#include "client/cpp/grpc_deadline.h"
#include "engine/base/return_if_error.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/finite_rows.h"
#include "wire/payload_message.h"

namespace hilbert_ring::client {

StreamAttempt::StreamAttempt(const AttendStreamCalls& calls, const JobOptions& options,
                             AttemptName name, ProgressTeller& progress, std::atomic<bool>& begun)
    : calls_(calls),
      options_(options),
      name_(std::move(name)),
      progress_(progress),
      begun_(begun) {}

std::variant<v1::Report, AttemptFailure> StreamAttempt::Run(
    const std::shared_ptr<grpc::Channel>& channel, absl::Time deadline) {
  constexpr char kMethod[] = "/hilbert_ring.v1.AttentionService/AttendStream";
  if (deadline < absl::InfiniteFuture()) context_.set_deadline(GrpcDeadline(deadline));
  if (!options_.traceparent.empty()) context_.AddMetadata("traceparent", options_.traceparent);
  CancelWatch watch(options_.cancelled, context_);
  watch.Start();
  stream_ = wire::OpenRawStream(*channel, kMethod, context_);
  stream_->Write(wire::Serialize(OpenRequest()));  // a failure shows in Finish
  absl::Status local;  // what we found wrong; the service knows the rest
  grpc::ByteBuffer message;
  while (local.ok() && stream_->Read(&message)) local = Handle(message);
  if (!local.ok()) context_.TryCancel();
  if (sender_.joinable()) {
    sender_.request_stop();
    sender_.join();
  }
  const absl::Status remote = EndOf(stream_->Finish(), watch);
  if (local.ok()) local = source_;
  if (local.ok() && remote.ok()) local = CheckEnd();
  if (!local.ok()) return AttemptFailure{.status = local, .admitted = admitted_};
  if (!remote.ok()) {
    return AttemptFailure{
        .status = remote, .admitted = admitted_, .pushback = PushbackOf(context_)};
  }
  report_->set_rows_not_finite(not_finite_);
  report_->set_first_row_not_finite(first_not_finite_);
  return *std::move(report_);
}

v1::AttendRequest StreamAttempt::OpenRequest() const {
  v1::AttendRequest request;
  v1::Open& open = *request.mutable_open();
  *open.mutable_spec() = wire::EncodeJobSpec(calls_.spec);
  open.set_want_lse(calls_.want_lse);
  open.set_job_id(name_.job_id);
  open.set_attempt(name_.attempt);
  open.set_epoch_tokens(calls_.epoch_tokens);
  return request;
}

absl::Status StreamAttempt::Handle(grpc::ByteBuffer& message) {
  v1::AttendResponse response;
  wire::Payload payload;
  if (wire::SplitPayload(message, wire::kOutputFields, *response.mutable_output(), payload)) {
    return Take(response.output(), payload);
  }
  if (!wire::Parse(message, response)) return ProtocolError("a message that is malformed");
  return Handle(response);
}

absl::Status StreamAttempt::Handle(const v1::AttendResponse& response) {
  switch (response.message_case()) {
    case v1::AttendResponse::kAdmitted:
      return Admit(response.admitted());
    case v1::AttendResponse::kOutput:
      return Take(response.output(), wire::Payload(response.output().payload()));
    case v1::AttendResponse::kEpoch:
      progress_.Update([](JobProgress& progress) { ++progress.epochs; });
      if (calls_.epoch) calls_.epoch(response.epoch());
      return absl::OkStatus();
    case v1::AttendResponse::kReport:
      report_ = response.report();
      return absl::OkStatus();
    default:
      break;  // a kind of message that is newer than this client
  }
  return absl::OkStatus();
}

absl::Status StreamAttempt::Admit(const v1::Admitted& admitted) {
  if (admitted.epoch_tokens() < 1) return ProtocolError("an epoch of no tokens");
  admitted_ = true;
  int64_t limit = wire::kMaxPayloadBytes;
  if (admitted.max_payload_bytes() > 0) limit = std::min(limit, admitted.max_payload_bytes());
  int64_t widest = 1;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    widest = std::max(widest, wire::TensorRowBytes(calls_.spec, tensor));
  }
  chunk_rows_ = std::clamp<int64_t>(std::min(options_.chunk_bytes, limit) / widest, 1,
                                    admitted.epoch_tokens());
  buffers_.emplace(chunk_rows_ * widest);
  progress_.Update([](JobProgress& progress) {
    progress.away = false;
    progress.admitted = true;
  });
  begun_ = true;
  sender_ = std::jthread([this](const std::stop_token& over) {
    source_ = SendAll(over);
    if (!source_.ok()) context_.TryCancel();
  });
  return absl::OkStatus();
}

absl::Status StreamAttempt::SendAll(const std::stop_token& over) {
  while (!over.stop_requested()) {
    ASSIGN_OR_RETURN(const std::optional<StreamBlock> block, calls_.next(over));
    if (!block) {
      input_ended_ = !over.stop_requested();
      stream_->WritesDone();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckBlock(*block));
    ASSIGN_OR_RETURN(const bool more, SendBlock(*block));
    if (!more) return absl::OkStatus();  // the stream has ended: its Finish says why
  }
  return absl::OkStatus();
}

absl::Status StreamAttempt::CheckBlock(const StreamBlock& block) const {
  if (block.rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of a stream has ", block.rows, " rows, expected at least 1"));
  }
  for (const auto& [tensor, bytes] :
       {std::pair(v1::TENSOR_Q, block.q), std::pair(v1::TENSOR_K, block.k),
        std::pair(v1::TENSOR_V, block.v)}) {
    const int64_t expected = block.rows * wire::TensorRowBytes(calls_.spec, tensor);
    if (std::ssize(bytes) == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat(wire::TensorName(tensor), ": a block of ",
                                                   block.rows, " rows has ", bytes.size(),
                                                   " bytes, the spec says ", expected));
  }
  return absl::OkStatus();
}

// Rows of Q, K and V by turns. False when the stream has ended.
absl::StatusOr<bool> StreamAttempt::SendBlock(const StreamBlock& block) {
  for (int64_t row = 0; row < block.rows; row += chunk_rows_) {
    const int64_t rows = std::min(chunk_rows_, block.rows - row);
    const int64_t first_row = sent_rows_.fetch_add(rows);  // before the service can answer
    for (const auto& [tensor, bytes] :
         {std::pair(v1::TENSOR_Q, block.q), std::pair(v1::TENSOR_K, block.k),
          std::pair(v1::TENSOR_V, block.v)}) {
      const int64_t row_bytes = wire::TensorRowBytes(calls_.spec, tensor);
      const std::string_view payload(reinterpret_cast<const char*>(bytes.data()) + row * row_bytes,
                                     rows * row_bytes);
      v1::Chunk chunk;
      chunk.set_tensor(tensor);
      chunk.set_first_row(first_row);
      chunk.set_rows(rows);
      chunk.set_crc32c(wire::Crc32c(payload));
      // The transport may hold on to a message after the call, so it gets a copy.
      if (!stream_->Write(
              wire::JoinPayload(wire::kChunkFields, chunk, {buffers_->Copy(payload)}))) {
        return false;
      }
      progress_.Update([&payload](JobProgress& progress) {
        progress.bytes_sent += static_cast<int64_t>(payload.size());
      });
    }
  }
  return true;
}

absl::Status StreamAttempt::Take(const v1::OutputChunk& chunk, const wire::Payload& payload) {
  const std::string name = wire::TensorName(chunk.tensor());
  const bool is_out = chunk.tensor() == v1::TENSOR_OUT;
  if (!is_out && !(calls_.want_lse && chunk.tensor() == v1::TENSOR_LSE)) {
    return ProtocolError(absl::StrCat("output of ", name, ", which was not asked for"));
  }
  int64_t& taken = is_out ? out_rows_ : lse_rows_;
  const int64_t row_bytes = wire::TensorRowBytes(calls_.spec, chunk.tensor());
  if (!chunk.tokens().empty()) return ProtocolError(name + ": rows of listed tokens");
  if (chunk.first_token() != taken || chunk.rows() < 1 || chunk.rows() > wire::kMaxPayloadBytes ||
      payload.bytes() != chunk.rows() * row_bytes) {
    return ProtocolError(absl::StrCat(name, ": ", chunk.rows(), " rows from ", chunk.first_token(),
                                      " on in ", payload.bytes(), " bytes, expected those from ",
                                      taken, " on, of ", row_bytes, " bytes each"));
  }
  if (const int64_t sent = sent_rows_; chunk.rows() > sent - taken) {
    return ProtocolError(absl::StrCat(name, ": ", chunk.rows(), " rows from ", taken,
                                      " on, of which ", sent - taken, " were sent"));
  }
  if (payload.Crc32c() != chunk.crc32c()) {
    return absl::DataLossError(
        absl::StrCat(name, ": the checksum of rows from ", taken, " on does not match"));
  }
  taken_.resize(payload.bytes());
  wire::PayloadReader(payload).Read(taken_.data(), payload.bytes());
  for (int64_t row = 0; is_out && row < chunk.rows(); ++row) {
    if (wire::IsFinite(calls_.spec.dtype, taken_.data() + row * row_bytes, row_bytes)) continue;
    if (not_finite_++ == 0) first_not_finite_ = taken + row;
  }
  RETURN_IF_ERROR(calls_.take(
      {.tensor = chunk.tensor(), .first_token = taken, .rows = chunk.rows(), .bytes = taken_}));
  taken += chunk.rows();
  if (is_out) {
    progress_.Update([&taken](JobProgress& progress) { progress.rows_placed = taken; });
  }
  return absl::OkStatus();
}

absl::Status StreamAttempt::CheckEnd() const {
  if (!report_) return ProtocolError("the stream ended well without a report");
  if (!input_ended_) return ProtocolError("the stream ended well before its input had");
  if (out_rows_ == sent_rows_ && (!calls_.want_lse || lse_rows_ == sent_rows_)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("of ", sent_rows_.load(), " rows that were sent ", out_rows_, " came back"));
}

}  // namespace hilbert_ring::client
