#include "client/cpp/attend.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/output_rows.h"
#include "grpcpp/client_context.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/raw_stream.h"
#include "wire/slice_pool.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

// Input that is not longer follows its Open at once, without waiting for Admitted: the service
// reads as much ahead.
constexpr int64_t kEagerBytes = 1 << 20;

constexpr char kAttendMethod[] = "/hilbert_ring.v1.AttentionService/Attend";

absl::Status CheckSize(const JobSpec& spec, v1::Tensor tensor, std::span<std::byte> data) {
  const int64_t expected = spec.tokens * wire::TensorRowBytes(spec, tensor);
  if (static_cast<int64_t>(data.size()) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(wire::TensorName(tensor), ": has ", data.size(),
                                                 " bytes, the spec says ", expected));
}

absl::Status CheckCall(const AttendInputs& inputs, const AttendOutputs& outputs,
                       const AttendOptions& options) {
  if (absl::Status status = CheckInputs(inputs); !status.ok()) return status;
  if (absl::Status status = CheckSize(inputs.spec, v1::TENSOR_OUT, outputs.out); !status.ok()) {
    return status;
  }
  if (!outputs.lse.empty()) {
    absl::Status status = CheckSize(inputs.spec, v1::TENSOR_LSE, outputs.lse);
    if (!status.ok()) return status;
  }
  if (options.chunk_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes: ", options.chunk_bytes, ", expected at least 1"));
  }
  return absl::OkStatus();
}

absl::Status ProtocolError(const std::string& what) {
  return absl::InternalError(absl::StrCat("the service broke the protocol: ", what));
}

// Cancels a call when asked to, until destroyed.
class CancelWatch {
 public:
  CancelWatch(const std::function<bool()>& cancelled, grpc::ClientContext& context) {
    if (!cancelled) return;
    thread_ = std::jthread([this, &cancelled, &context](std::stop_token stop) {
      std::unique_lock lock(mutex_);
      while (!wake_.wait_for(lock, stop, std::chrono::milliseconds(100),
                             [&stop] { return stop.stop_requested(); })) {
        if (stop.stop_requested()) return;
        if (cancelled()) {
          context.TryCancel();
          return;
        }
      }
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses the two above
};

// Progress, told by the sending and the receiving thread.
class ProgressTeller {
 public:
  ProgressTeller(const std::function<void(const AttendProgress&)>& tell, const JobSpec& spec)
      : tell_(tell) {
    progress_.bytes_to_send = InputBytes(spec);
    progress_.tokens = spec.tokens;
  }

  template <typename Change>
  void Update(Change change) {
    if (!tell_) return;
    const std::lock_guard lock(mutex_);
    change(progress_);
    tell_(progress_);
  }

 private:
  const std::function<void(const AttendProgress&)>& tell_;
  std::mutex mutex_;
  AttendProgress progress_;  // guarded by mutex_
};

class Call {
 public:
  Call(const AttendInputs& inputs, const AttendOutputs& outputs, const AttendOptions& options)
      : inputs_(inputs),
        options_(options),
        progress_(options.progress, inputs.spec),
        out_(v1::TENSOR_OUT, inputs.spec.tokens, wire::TensorRowBytes(inputs.spec, v1::TENSOR_OUT),
             outputs.out) {
    if (!outputs.lse.empty()) {
      lse_.emplace(v1::TENSOR_LSE, inputs.spec.tokens,
                   wire::TensorRowBytes(inputs.spec, v1::TENSOR_LSE), outputs.lse);
    }
  }

  absl::StatusOr<v1::Report> Run(const std::shared_ptr<grpc::Channel>& channel) {
    if (options_.deadline < absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + options_.deadline));
    }
    const CancelWatch watch(options_.cancelled, context_);
    stream_ = wire::OpenRawStream(*channel, kAttendMethod, context_);
    stream_->Write(wire::Serialize(OpenRequest()));  // a failure shows in Finish
    absl::Status local;  // what we found wrong; the service knows the rest
    if (InputBytes(inputs_.spec) <= kEagerBytes) {
      local = CutChunks(wire::kMaxPayloadBytes);
      if (local.ok()) Send();
    }
    grpc::ByteBuffer message;
    while (local.ok() && stream_->Read(&message)) local = Handle(message);
    if (!local.ok()) context_.TryCancel();
    if (sender_.joinable()) sender_.join();  // its Write fails once the stream has ended
    const absl::Status remote = wire::FromGrpc(stream_->Finish());
    if (!local.ok()) return local;
    if (!remote.ok()) return Explain(remote);
    return Complete();
  }

 private:
  v1::AttendRequest OpenRequest() const {
    v1::AttendRequest request;
    v1::Open& open = *request.mutable_open();
    *open.mutable_spec() = wire::EncodeJobSpec(inputs_.spec);
    open.set_want_lse(lse_.has_value());
    open.set_job_id(options_.job_id);
    open.set_attempt(options_.attempt);
    return request;
  }

  absl::Status Handle(grpc::ByteBuffer& message) {
    v1::AttendResponse response;
    wire::Payload payload;
    if (wire::SplitPayload(message, wire::kOutputFields, *response.mutable_output(), payload)) {
      return Place(response.output(), payload);
    }
    if (!wire::Parse(message, response)) return ProtocolError("a message that is malformed");
    return Handle(response);
  }

  absl::Status Handle(const v1::AttendResponse& response) {
    if (report_) return ProtocolError("a message after the report");
    switch (response.message_case()) {
      case v1::AttendResponse::kQueued:
        if (admitted_) return ProtocolError("the job is queued after it was admitted");
        progress_.Update(
            [&](AttendProgress& progress) { progress.jobs_before = response.queued().position(); });
        return absl::OkStatus();
      case v1::AttendResponse::kAdmitted:
        return Admit(response.admitted());
      case v1::AttendResponse::kProgress:
        progress_.Update([&](AttendProgress& progress) {
          if (response.progress().phase() == v1::Progress::PHASE_COMPUTE) {
            progress.compute_fraction = response.progress().fraction();
          }
        });
        return absl::OkStatus();
      case v1::AttendResponse::kOutput:
        return Place(response.output(), wire::Payload(response.output().payload()));
      case v1::AttendResponse::kReport:
        if (!admitted_) return ProtocolError("a report before the job was admitted");
        report_ = response.report();
        return absl::OkStatus();
      case v1::AttendResponse::kResend:
        return ProtocolError("asked to send rows again, which this client did not offer");
      case v1::AttendResponse::MESSAGE_NOT_SET:
        break;  // a kind of message that is newer than this client
    }
    return absl::OkStatus();
  }

  absl::Status Admit(const v1::Admitted& admitted) {
    if (admitted_) return ProtocolError("the job was admitted twice");
    admitted_ = true;
    progress_.Update([&](AttendProgress& progress) {
      progress.admitted = true;
      progress.workers = admitted.workers();
    });
    if (chunks_) return absl::OkStatus();
    int64_t limit = wire::kMaxPayloadBytes;
    if (admitted.max_payload_bytes() > 0) limit = std::min(limit, admitted.max_payload_bytes());
    if (absl::Status status = CutChunks(limit); !status.ok()) return status;
    sender_ = std::jthread([this] { Send(); });
    return absl::OkStatus();
  }

  // In payloads of at most `limit` bytes.
  absl::Status CutChunks(int64_t limit) {
    // A row is never cut, so one that is longer than a chunk should be is sent as it is.
    const int64_t payload = std::min(
        std::max(std::min(options_.chunk_bytes, limit), LongestInputRowBytes(inputs_.spec)), limit);
    chunks_.emplace(inputs_, payload);
    longest_payload_ = std::min(payload, InputBytes(inputs_.spec));
    return chunks_->Check();
  }

  // In the sending thread, should there be one.
  void Send() {
    wire::SlicePool buffers(longest_payload_);
    v1::Chunk chunk;
    std::string_view payload;
    int64_t left = InputBytes(inputs_.spec);
    while (chunks_->Next(chunk, payload)) {
      const auto bytes = static_cast<int64_t>(payload.size());
      left -= bytes;
      grpc::WriteOptions options;
      if (left == 0) options.set_last_message();
      // The transport may hold on to a message after the call, so it gets a copy.
      if (!stream_->Write(wire::JoinPayload(wire::kChunkFields, chunk, {buffers.Copy(payload)}),
                          options)) {
        return;  // the stream has ended; Finish says why
      }
      if (inputs_.sent && chunk.tensor() != v1::TENSOR_COORDS) {
        const int64_t begin = chunk.first_row() * (bytes / chunk.rows());
        inputs_.sent(chunk.tensor(), begin, begin + bytes);
      }
      progress_.Update([bytes](AttendProgress& progress) { progress.bytes_sent += bytes; });
    }
  }

  absl::Status Place(const v1::OutputChunk& chunk, const wire::Payload& payload) {
    if (report_) return ProtocolError("a message after the report");
    if (!admitted_) return ProtocolError("output before the job was admitted");
    if (chunk.tensor() == v1::TENSOR_LSE && lse_) return lse_->Place(chunk, payload);
    if (chunk.tensor() != v1::TENSOR_OUT) {
      return ProtocolError(absl::StrCat("output of ", wire::TensorName(chunk.tensor()),
                                        ", which was not asked for"));
    }
    absl::Status status = out_.Place(chunk, payload);
    if (status.ok()) {
      progress_.Update(
          [this](AttendProgress& progress) { progress.rows_placed = out_.rows_placed(); });
    }
    return status;
  }

  // gRPC's own words for what this client asked for are short.
  absl::Status Explain(const absl::Status& status) const {
    if (absl::IsDeadlineExceeded(status) && options_.deadline < absl::InfiniteDuration()) {
      return absl::DeadlineExceededError(absl::StrCat("the job's deadline of ",
                                                      absl::FormatDuration(options_.deadline),
                                                      " passed: ", status.message()));
    }
    return status;
  }

  absl::StatusOr<v1::Report> Complete() const {
    if (!report_) return ProtocolError("the stream ended well without a report");
    if (absl::Status status = out_.CheckComplete(); !status.ok()) return status;
    if (lse_) {
      if (absl::Status status = lse_->CheckComplete(); !status.ok()) return status;
    }
    return *report_;
  }

  const AttendInputs& inputs_;
  const AttendOptions& options_;
  ProgressTeller progress_;
  OutputRows out_;
  std::optional<OutputRows> lse_;
  bool admitted_ = false;
  std::optional<v1::Report> report_;
  grpc::ClientContext context_;
  std::unique_ptr<wire::RawStream> stream_;
  std::optional<InputChunks> chunks_;  // used by the sending thread alone, once it runs
  int64_t longest_payload_ = 0;        // bytes
  std::jthread sender_;
};

}  // namespace

absl::StatusOr<v1::Report> Attend(const std::shared_ptr<grpc::Channel>& channel,
                                  const AttendInputs& inputs, const AttendOutputs& outputs,
                                  const AttendOptions& options) {
  if (absl::Status status = CheckCall(inputs, outputs, options); !status.ok()) return status;
  Call call(inputs, outputs, options);
  return call.Run(channel);
}

}  // namespace hilbert_ring::client
