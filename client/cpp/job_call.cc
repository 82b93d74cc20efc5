#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/assembled_rows.h"
#include "client/cpp/conversation.h"
#include "client/cpp/errors.h"
#include "client/cpp/input_chunks.h"
#include "client/cpp/resend_queue.h"
#include "client/cpp/retry.h"
#include "client/cpp/service.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/job_id.h"
#include "wire/payload_message.h"
#include "wire/slice_pool.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::client {
namespace {

// gRPC computes its deadline from an earlier reading of the clock.
constexpr absl::Duration kDeadlineEarly = absl::Milliseconds(100);

absl::Status CheckOptions(const JobOptions& options) {
  if (options.chunk_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes is ", options.chunk_bytes, ", must be at least 1"));
  }
  if (options.max_attempts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_attempts is ", options.max_attempts, ", must be at least 1"));
  }
  const int last = std::numeric_limits<int>::max() - options.max_attempts;
  if (options.attempt < 0 || options.attempt > last) {
    return absl::InvalidArgumentError(
        absl::StrCat("attempt is ", options.attempt, ", must be 0 to ", last));
  }
  return absl::OkStatus();
}

// Returns whether the job's own deadline ended it, not a limit of the service.
bool PassedDeadline(const absl::Status& status, absl::Duration left) {
  if (!absl::IsDeadlineExceeded(status) || left > kDeadlineEarly) return false;
  return wire::ReasonOf(status) == absl::StatusCodeToString(status.code()) ||
         wire::HasReason(status, wire::reason::kClientDeadline);
}

// The conversation of Attend and Encode, from Open to the report.
class JobConversation : public Conversation {
 public:
  // All must outlive the object; inputs and outputs were checked. The options chunk_bytes,
  // can_resend and want_trace have an effect.
  JobConversation(const JobRequest& request, const JobOptions& options, AttemptName name,
                  ProgressTeller& progress)
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

  const char* method() const override { return request_.method; }

  v1::AttendRequest Open() override {
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

  absl::Status Handle(const v1::AttendResponse& response, const wire::Payload& payload) override {
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
          if (response.progress().phase() == v1::Progress::PHASE_COMPUTE) {
            progress.compute_fraction = response.progress().fraction();
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
        return absl::OkStatus();  // a newer service sent it
    }
  }

  absl::StatusOr<v1::Report> Finish() override {
    if (!report_) return ProtocolError("the stream ended well without a report");
    for (const auto& [tensor, rows] : outputs_) RETURN_IF_ERROR(rows.CheckComplete());
    if (outputs_.empty()) return *std::move(report_);  // the service has counted
    const AssembledRows& first = outputs_.at(request_.tensors.outputs.front().tensor);
    report_->set_rows_not_finite(first.rows_not_finite());
    report_->set_first_row_not_finite(first.first_not_finite());
    return *std::move(report_);
  }

  bool admitted() const override { return admitted_; }

  Sending sending() const override {
    if (!chunks_) return Sending::kNothing;
    const MutexLock lock(mutex_);
    if (!reported_ && (bytes_left_ > 0 || !again_.empty())) return Sending::kRows;
    return reported_ || !options_.can_resend ? Sending::kEnd : Sending::kNothing;
  }

  // Rows requested again go before rows never sent. OUT_OF_RANGE: a row is longer than a payload
  // may be; nothing was sent then.
  absl::StatusOr<std::optional<Message>> Next(const std::stop_token& /*over*/) override {
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

  void Sent() override {
    const auto bytes = static_cast<int64_t>(payload_.size());
    if (request_.tensors.sent) {
      const int64_t begin = chunk_.first_row() * (bytes / chunk_.rows());
      request_.tensors.sent(chunk_.tensor(), begin, begin + bytes);
    }
    progress_.Update([bytes](JobProgress& progress) { progress.bytes_sent += bytes; });
  }

 private:
  void NoteAdmitted(int workers) {
    admitted_ = true;
    progress_.Update([workers](JobProgress& progress) {
      progress.away = false;
      progress.admitted = true;
      progress.workers = workers;
    });
  }

  void BeginInput(int64_t max_payload_bytes) {
    // A row is never cut: if a chunk's limit is shorter, the chunk has one row.
    const int64_t payload = std::min(
        std::max(options_.chunk_bytes, request_.tensors.Widest().row_bytes), max_payload_bytes);
    chunks_.emplace(request_.tensors, payload);
    buffers_.emplace(std::min(payload, request_.tensors.input_bytes()));
  }

  absl::Status Resend(const v1::Resend& resend) {
    if (!chunks_) return ProtocolError("a request for rows that lie in files");
    int64_t bytes = 0;
    {
      const MutexLock lock(mutex_);
      bytes = again_.Add(resend);
    }
    progress_.Update([bytes](JobProgress& progress) { progress.bytes_to_send += bytes; });
    return absl::OkStatus();
  }

  absl::Status Place(const v1::OutputChunk& chunk, const wire::Payload& payload) {
    const auto output = outputs_.find(chunk.tensor());
    if (output == outputs_.end()) {
      return ProtocolError(absl::StrCat("output of ", wire::TensorName(chunk.tensor()),
                                        ", which was not requested"));
    }
    AssembledRows& rows = output->second;
    RETURN_IF_ERROR(rows.Place(chunk, payload));
    if (chunk.tensor() == request_.tensors.outputs.front().tensor) {
      progress_.Update(
          [&rows](JobProgress& progress) { progress.rows_placed = rows.rows_placed(); });
    }
    return absl::OkStatus();
  }

  const JobRequest& request_;
  const JobOptions& options_;
  const AttemptName name_;
  ProgressTeller& progress_;
  std::map<v1::Tensor, AssembledRows> outputs_;
  bool admitted_ = false;
  std::optional<v1::Report> report_;
  // Set once the size of chunks is known:
  std::optional<InputChunks> chunks_;
  std::optional<wire::SlicePool> buffers_;
  v1::Chunk chunk_;  // the current one; payload_ is its payload
  std::string_view payload_;
  std::atomic<int64_t> bytes_left_;  // inputs that were never sent
  mutable Mutex mutex_;
  bool reported_ ABSL_GUARDED_BY(mutex_) = false;
  ResendQueue again_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<v1::Report> CallJob(Connector& connector, const NewConversation& conversation,
                                   const JobProgress& begin, const JobOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  AttemptName name{.job_id = options.job_id.empty() ? wire::DrawJobId() : options.job_id,
                   .attempt = options.attempt};
  ProgressTeller progress(options.progress);
  const auto reset = [&](JobProgress to) {
    to.job_id = name.job_id;
    to.attempt = name.attempt;
    progress.Reset(std::move(to));
  };
  reset(begin);
  v1::Report report;
  RetriedCall call;
  call.timing = WithDefaults(options.timing);
  call.cancelled = options.cancelled;
  call.policy.max_attempts = options.max_attempts;
  call.policy.deadline = options.deadline;
  call.policy.end = call.timing.now() + options.deadline - options.spent;
  call.policy.outage_timeout = options.outage_timeout;
  call.final = [&](const AttemptFailure& failure) {
    // The client keeps no rows of a stream.
    return (begin.stream && failure.admitted) || (options.final && options.final(failure.status));
  };
  call.make = [&](absl::Time deadline) -> std::optional<AttemptFailure> {
    const auto attempt = conversation(name, progress);
    auto outcome = Carry(*attempt, connector.channel(), deadline, options);
    if (auto* failure = std::get_if<AttemptFailure>(&outcome)) return std::move(*failure);
    report = std::get<v1::Report>(std::move(outcome));
    return std::nullopt;
  };
  call.tell = [&](const CallRetry& retry) {
    ++name.attempt;
    JobProgress next = begin;
    next.last_failure = retry.failure;
    next.wait = retry.wait;
    next.away = retry.away;
    reset(std::move(next));
    progress.Update([](JobProgress&) {});
  };
  const absl::Status ended = CallWithRetries(connector, call);
  if (PassedDeadline(ended, call.policy.end - call.timing.now())) {
    return WithMessage(
        ended, absl::StrCat("the job's deadline of ", absl::FormatDuration(options.deadline),
                            " passed: ", ended.message()));
  }
  RETURN_IF_ERROR(ended);
  return report;
}

absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options) {
  JobProgress begin;
  begin.by_reference = request.by_reference();
  begin.bytes_to_send = request.tensors.input_bytes();
  const auto& outputs = request.tensors.outputs;
  begin.rows = outputs.empty() ? 0 : outputs.front().rows;
  begin.tokens = request.tokens;
  const auto conversation = [&](const AttemptName& name, ProgressTeller& progress) {
    return std::make_unique<JobConversation>(request, options, name, progress);
  };
  return CallJob(connector, conversation, begin, options);
}

absl::StatusOr<v1::Report> CallJob(const std::string& server, const JobRequest& request,
                                   const JobOptions& options) {
  Connector connector([&server, &options] { return Connect(server, options.access); });
  return CallJob(connector, request, options);
}

}  // namespace hilbert_ring::client
