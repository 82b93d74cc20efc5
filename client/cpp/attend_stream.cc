#include "client/cpp/attend_stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/connector.h"
#include "client/cpp/conversation.h"
#include "client/cpp/errors.h"
#include "client/cpp/service.h"
#include "engine/base/return_if_error.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/finite_rows.h"
#include "wire/payload_message.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::client {
namespace {

absl::Status Check(const AttendStreamCalls& calls) {
  if (calls.spec.tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens is ", calls.spec.tokens, ", but a stream without end has no count of tokens"));
  }
  if (!calls.next || !calls.take) {
    return absl::InvalidArgumentError("next, take: a stream needs both");
  }
  // The epochs' limits, which the service checks, depend on its tokens.
  JobSpec spec = calls.spec;
  spec.tokens = 1;
  spec.sequence_lengths.clear();
  spec.ordering.reset();
  return Validate(spec);
}

// Q, K and V of a block, in the order of their chunks.
std::array<std::pair<v1::Tensor, std::span<const std::byte>>, 3> TensorsOf(
    const StreamBlock& block) {
  return {{{v1::TENSOR_Q, block.q}, {v1::TENSOR_K, block.k}, {v1::TENSOR_V, block.v}}};
}

// The conversation of AttendStream, from Open to the report.
class StreamConversation : public Conversation {
 public:
  // All must outlive the object. The option chunk_bytes has an effect.
  StreamConversation(const AttendStreamCalls& calls, const JobOptions& options, AttemptName name,
                     ProgressTeller& progress)
      : calls_(calls), options_(options), name_(std::move(name)), progress_(progress) {}

  const char* method() const override { return "/hilbert_ring.v1.AttentionService/AttendStream"; }

  v1::AttendRequest Open() override {
    v1::AttendRequest request;
    v1::Open& open = *request.mutable_open();
    *open.mutable_spec() = wire::EncodeJobSpec(calls_.spec);
    open.set_want_lse(calls_.want_lse);
    open.set_job_id(name_.job_id);
    open.set_attempt(name_.attempt);
    open.set_epoch_tokens(calls_.epoch_tokens);
    return request;
  }

  absl::Status Handle(const v1::AttendResponse& response, const wire::Payload& payload) override {
    switch (response.message_case()) {
      case v1::AttendResponse::kAdmitted:
        return Admit(response.admitted());
      case v1::AttendResponse::kOutput:
        return Take(response.output(), payload);
      case v1::AttendResponse::kEpoch:
        progress_.Update([](JobProgress& progress) { ++progress.epochs; });
        if (calls_.epoch) calls_.epoch(response.epoch());
        return absl::OkStatus();
      case v1::AttendResponse::kReport:
        report_ = response.report();
        return absl::OkStatus();
      default:
        return absl::OkStatus();  // a newer service sent it
    }
  }

  absl::StatusOr<v1::Report> Finish() override {
    if (!report_) return ProtocolError("the stream ended well without a report");
    if (!input_ended_) return ProtocolError("the stream ended well before its input had");
    if (out_rows_ != sent_rows_ || (calls_.want_lse && lse_rows_ != sent_rows_)) {
      return absl::DataLossError(
          absl::StrCat(out_rows_, " of ", sent_rows_.load(), " rows came back"));
    }
    report_->set_rows_not_finite(not_finite_);
    report_->set_first_row_not_finite(first_not_finite_);
    return *std::move(report_);
  }

  bool admitted() const override { return admitted_; }

  Sending sending() const override {
    if (!admitted_) return Sending::kNothing;
    return input_ended_ ? Sending::kEnd : Sending::kRows;
  }

  absl::StatusOr<std::optional<Message>> Next(const std::stop_token& over) override {
    if (row_ == block_.rows) {
      ASSIGN_OR_RETURN(const std::optional<StreamBlock> block, calls_.next(over));
      if (!block) {
        input_ended_ = !over.stop_requested();
        return std::nullopt;
      }
      RETURN_IF_ERROR(CheckBlock(*block));
      block_ = *block;
      row_ = 0;
    }
    if (tensor_ == 0) {
      rows_ = std::min(chunk_rows_, block_.rows - row_);
      sent_rows_ += rows_;  // before the service can answer
    }
    const auto tensors = TensorsOf(block_);
    const auto& [tensor, bytes] = tensors[tensor_];
    const int64_t row_bytes = wire::TensorRowBytes(calls_.spec, tensor);
    payload_bytes_ = rows_ * row_bytes;
    const std::string_view payload(reinterpret_cast<const char*>(bytes.data()) + row_ * row_bytes,
                                   payload_bytes_);
    v1::Chunk chunk;
    chunk.set_tensor(tensor);
    chunk.set_first_row(sent_rows_ - rows_);
    chunk.set_rows(rows_);
    chunk.set_crc32c(wire::Crc32c(payload));
    tensor_ = (tensor_ + 1) % std::ssize(tensors);
    if (tensor_ == 0) row_ += rows_;
    // A copy, because the transport may hold the message after the call.
    return Message{wire::JoinPayload(wire::kChunkFields, chunk, {buffers_->Copy(payload)}), {}};
  }

  void Sent() override {
    progress_.Update([this](JobProgress& progress) { progress.bytes_sent += payload_bytes_; });
  }

 private:
  absl::Status Admit(const v1::Admitted& admitted) {
    if (admitted.epoch_tokens() < 1) return ProtocolError("an epoch of no tokens");
    admitted_ = true;
    int64_t limit = wire::kMaxPayloadBytes;
    if (admitted.max_payload_bytes() > 0) limit = std::min(limit, admitted.max_payload_bytes());
    int64_t widest = 1;
    for (const auto& [tensor, bytes] : TensorsOf({})) {
      widest = std::max(widest, wire::TensorRowBytes(calls_.spec, tensor));
    }
    chunk_rows_ = std::clamp<int64_t>(std::min(options_.chunk_bytes, limit) / widest, 1,
                                      admitted.epoch_tokens());
    buffers_.emplace(chunk_rows_ * widest);
    progress_.Update([](JobProgress& progress) {
      progress.away = false;
      progress.admitted = true;
    });
    return absl::OkStatus();
  }

  absl::Status Take(const v1::OutputChunk& chunk, const wire::Payload& payload) {
    const std::string name = wire::TensorName(chunk.tensor());
    const bool is_out = chunk.tensor() == v1::TENSOR_OUT;
    int64_t& taken = is_out ? out_rows_ : lse_rows_;
    const int64_t row_bytes = wire::TensorRowBytes(calls_.spec, chunk.tensor());
    if (const int64_t sent = sent_rows_; chunk.first_token() != taken || chunk.rows() < 1 ||
                                         chunk.rows() > sent - taken ||
                                         payload.bytes() != chunk.rows() * row_bytes) {
      return ProtocolError(absl::StrCat(name, ": ", chunk.rows(), " rows from ",
                                        chunk.first_token(), " on in ", payload.bytes(),
                                        " bytes, expected those from ", taken, " on of ", sent,
                                        ", of ", row_bytes, " bytes each"));
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

  absl::Status CheckBlock(const StreamBlock& block) const {
    if (block.rows < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a block of a stream has ", block.rows, " rows, must have at least 1"));
    }
    for (const auto& [tensor, bytes] : TensorsOf(block)) {
      const int64_t expected = block.rows * wire::TensorRowBytes(calls_.spec, tensor);
      if (std::ssize(bytes) == expected) continue;
      return absl::InvalidArgumentError(absl::StrCat(wire::TensorName(tensor), ": a block of ",
                                                     block.rows, " rows has ", bytes.size(),
                                                     " bytes, must have ", expected));
    }
    return absl::OkStatus();
  }

  const AttendStreamCalls& calls_;
  const JobOptions& options_;
  const AttemptName name_;
  ProgressTeller& progress_;
  bool admitted_ = false;
  int64_t chunk_rows_ = 0;
  int64_t out_rows_ = 0, lse_rows_ = 0;
  int64_t not_finite_ = 0, first_not_finite_ = 0;  // OUT's rows
  std::vector<std::byte> taken_;                   // a chunk's contiguous rows
  std::optional<v1::Report> report_;
  std::atomic<int64_t> sent_rows_ = 0;  // including rows being sent now
  // Used by the sending thread until it has ended:
  std::optional<wire::SlicePool> buffers_;
  StreamBlock block_;           // being sent
  int64_t row_ = 0, rows_ = 0;  // the first row and the count of the current band in block_
  int tensor_ = 0;              // index of the band's next tensor; Q, K and V are interleaved
  int64_t payload_bytes_ = 0;
  bool input_ended_ = false;
};

absl::StatusOr<v1::Report> AttendStream(Connector connector, const AttendStreamCalls& calls,
                                        const JobOptions& options) {
  RETURN_IF_ERROR(Check(calls));
  const auto conversation = [&](const AttemptName& name, ProgressTeller& progress) {
    return std::make_unique<StreamConversation>(calls, options, name, progress);
  };
  return CallJob(connector, conversation, {.stream = true}, options);
}

}  // namespace

absl::StatusOr<v1::Report> AttendStream(const std::string& server, const AttendStreamCalls& calls,
                                        const JobOptions& options) {
  return AttendStream(
      Connector([&server, &options] { return ConnectForStream(server, options.access); }), calls,
      options);
}

absl::StatusOr<v1::Report> AttendStream(const std::shared_ptr<grpc::Channel>& channel,
                                        const AttendStreamCalls& calls, const JobOptions& options) {
  return AttendStream(Connector(channel), calls, options);
}

}  // namespace hilbert_ring::client
