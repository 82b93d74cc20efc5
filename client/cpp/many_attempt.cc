#include "client/cpp/many_attempt.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/assembled_rows.h"
#include "client/cpp/call_end.h"
#include "client/cpp/cancel_watch.h"
#include "client/cpp/grpc_deadline.h"
#include "engine/base/return_if_error.h"
#include "google/rpc/status.pb.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

constexpr char kMethod[] = "/hilbert_ring.v1.SmallJobsService/AttendMany";

void AddRows(v1::SmallJob& job, v1::Tensor tensor, int64_t rows, std::string payload) {
  v1::Chunk& chunk = *job.add_rows();
  chunk.set_tensor(tensor);
  chunk.set_rows(rows);
  chunk.set_crc32c(wire::Crc32c(payload));
  chunk.set_payload(std::move(payload));
}

std::string StringOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::Status ErrorOf(const std::string& error) {
  google::rpc::Status status;
  if (!status.ParseFromString(error) || status.code() == 0) {
    return ProtocolError("an error that is none");
  }
  return wire::FromGrpc({static_cast<grpc::StatusCode>(status.code()), status.message(), error});
}

// Whether a call of the job alone would be made again: no worker is there, or the service stops.
bool Passes(const absl::Status& error) {
  return absl::IsUnavailable(error) || wire::HasReason(error, wire::reason::kWorkerLost);
}

OutputTensor OutputOf(const SmallJob& job, v1::Tensor tensor) {
  const JobSpec& spec = job.inputs.spec;
  const bool is_out = tensor == v1::TENSOR_OUT;
  return {.tensor = tensor,
          .rows = spec.tokens,
          .row_bytes = wire::TensorRowBytes(spec, tensor),
          .type = is_out ? spec.dtype : DataType::kFloat32,
          .data = is_out ? job.outputs.out : job.outputs.lse};
}

}  // namespace

int64_t InputBytes(const AttendInputs& inputs) {
  const JobSpec& spec = inputs.spec;
  int64_t bytes = std::ssize(inputs.q) + std::ssize(inputs.k) + std::ssize(inputs.v);
  if (spec.ordering && spec.ordering->coordinate_axes > 0) {
    bytes += spec.tokens * wire::TensorRowBytes(spec, v1::TENSOR_COORDS);
  }
  return bytes;
}

ManyAttempt::ManyAttempt(std::span<const SmallJob> jobs, ManyEnds& ends, const JobOptions& options,
                         int attempt, ProgressTeller& progress)
    : jobs_(jobs), ends_(ends), options_(options), attempt_(attempt), progress_(progress) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (!ends[i]) sent_.push_back(i);
  }
}

std::variant<v1::Report, AttemptFailure> ManyAttempt::Run(
    const std::shared_ptr<grpc::Channel>& channel, absl::Time deadline) {
  if (sent_.empty()) return v1::Report();
  if (deadline < absl::InfiniteFuture()) context_.set_deadline(GrpcDeadline(deadline));
  if (!options_.traceparent.empty()) context_.AddMetadata("traceparent", options_.traceparent);
  CancelWatch watch(options_.cancelled, context_);
  watch.Start();
  stream_ = wire::OpenRawStream(*channel, kMethod, context_);
  absl::Status local;  // what we found wrong; the service knows the rest
  {
    const std::jthread sender([this] { SendAll(); });
    grpc::ByteBuffer message;
    while (local.ok() && stream_->Read(&message)) local = Handle(message);
    if (!local.ok()) context_.TryCancel();
  }
  const absl::Status remote = EndOf(stream_->Finish(), watch);
  if (local.ok() && remote.ok() && come_.size() < sent_.size()) {
    local = ProtocolError("the call ended well before all jobs had");
  }
  if (!local.ok()) return AttemptFailure{.status = local, .admitted = taken_};
  if (!remote.ok()) {
    return AttemptFailure{.status = remote, .admitted = taken_, .pushback = PushbackOf(context_)};
  }
  if (!passing_.ok()) return AttemptFailure{.status = passing_, .admitted = taken_};
  return v1::Report();
}

// Full messages, until the call has ended or all jobs have left.
void ManyAttempt::SendAll() {
  v1::AttendManyRequest request;
  int64_t bytes = 0;
  const int64_t limit = std::min(options_.chunk_bytes, wire::kMaxPayloadBytes);
  const auto leave = [&] {
    const bool taken = stream_->Write(wire::Serialize(request));
    request.clear_jobs();
    progress_.Update([&bytes](JobProgress& progress) { progress.bytes_sent += bytes; });
    bytes = 0;
    return taken;
  };
  int64_t message_bytes = 0;
  for (const size_t i : sent_) {
    v1::SmallJob job = MessageOf(jobs_[i]);
    const auto more = static_cast<int64_t>(job.ByteSizeLong());
    const bool full = message_bytes + more > limit || request.jobs_size() == wire::kMostSmallJobs;
    if (request.jobs_size() > 0 && full) {
      if (!leave()) return;
      message_bytes = 0;
    }
    message_bytes += more;
    bytes += InputBytes(jobs_[i].inputs);
    *request.add_jobs() = std::move(job);
  }
  if (leave()) stream_->WritesDone();
}

v1::SmallJob ManyAttempt::MessageOf(const SmallJob& job) const {
  const AttendInputs& inputs = job.inputs;
  v1::SmallJob small;
  v1::Open& open = *small.mutable_open();
  *open.mutable_spec() = wire::EncodeJobSpec(inputs.spec);
  open.set_want_lse(!job.outputs.lse.empty());
  if (!job.job_id.empty()) {
    open.set_job_id(job.job_id);
    open.set_attempt(attempt_);
  }
  const int64_t rows = inputs.spec.tokens;
  if (inputs.spec.ordering && inputs.spec.ordering->coordinate_axes > 0) {
    std::vector<uint32_t> values(rows * inputs.spec.ordering->coordinate_axes);
    inputs.coordinates(0, values);
    AddRows(small, v1::TENSOR_COORDS, rows, StringOf(std::as_bytes(std::span(values))));
  }
  AddRows(small, v1::TENSOR_Q, rows, StringOf(inputs.q));
  AddRows(small, v1::TENSOR_K, rows, StringOf(inputs.k));
  AddRows(small, v1::TENSOR_V, rows, StringOf(inputs.v));
  return small;
}

absl::Status ManyAttempt::Handle(grpc::ByteBuffer& message) {
  v1::AttendManyResponse response;
  if (!wire::Parse(message, response)) return ProtocolError("a message that is malformed");
  for (const v1::SmallResult& result : response.results()) RETURN_IF_ERROR(Take(result));
  return absl::OkStatus();
}

absl::Status ManyAttempt::Take(const v1::SmallResult& result) {
  if (result.job() < 0 || result.job() >= std::ssize(sent_)) {
    return ProtocolError(absl::StrCat("a result of job ", result.job(), ", which was not sent"));
  }
  const size_t job = sent_[result.job()];
  if (!come_.insert(job).second) {
    return ProtocolError(absl::StrCat("two results of job ", result.job()));
  }
  if (!result.error().empty()) {
    absl::Status error = ErrorOf(result.error());
    if (Passes(error)) {
      passing_ = std::move(error);
      return absl::OkStatus();
    }
    ends_[job] = std::move(error);
  } else {
    ends_[job] = Place(jobs_[job], result);
  }
  taken_ = true;
  progress_.Update([&](JobProgress& progress) {
    progress.away = false;
    progress.admitted = true;
    progress.rows_placed += jobs_[job].inputs.spec.tokens;
  });
  return absl::OkStatus();
}

absl::StatusOr<v1::Report> ManyAttempt::Place(const SmallJob& job,
                                              const v1::SmallResult& result) const {
  std::map<v1::Tensor, AssembledRows> outputs;
  outputs.try_emplace(v1::TENSOR_OUT, OutputOf(job, v1::TENSOR_OUT));
  if (!job.outputs.lse.empty()) {
    outputs.try_emplace(v1::TENSOR_LSE, OutputOf(job, v1::TENSOR_LSE));
  }
  for (const v1::OutputChunk& chunk : result.outputs()) {
    const auto output = outputs.find(chunk.tensor());
    if (output == outputs.end()) {
      return ProtocolError(absl::StrCat("output of ", wire::TensorName(chunk.tensor()),
                                        ", which was not asked for"));
    }
    RETURN_IF_ERROR(output->second.Place(chunk, wire::Payload(chunk.payload())));
  }
  for (const auto& [tensor, rows] : outputs) RETURN_IF_ERROR(rows.CheckComplete());
  const AssembledRows& out = outputs.at(v1::TENSOR_OUT);
  v1::Report report = result.report();
  report.set_rows_not_finite(out.rows_not_finite());
  report.set_first_row_not_finite(out.first_not_finite());
  return report;
}

}  // namespace hilbert_ring::client
