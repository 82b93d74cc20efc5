#include "tests/unit/client/fake_service.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "engine/plan/plan.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using Stream = grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>;

// The log-sum-exp of token t is t for every head.
std::string LseRows(const JobSpec& spec, int64_t first, int64_t rows) {
  std::vector<float> values;
  for (int64_t token = first; token < first + rows; ++token) {
    values.insert(values.end(), static_cast<size_t>(spec.heads), static_cast<float>(token));
  }
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Makes shuffled chunks; every other one lists its tokens in descending order.
std::vector<v1::OutputChunk> EchoedOutputs(const JobSpec& spec, bool want_lse,
                                           const std::string& q) {
  constexpr int64_t kRowsOfOutput = 3;
  const int64_t row_bytes = wire::TensorRowBytes(spec, v1::TENSOR_Q);
  std::vector<v1::OutputChunk> outputs;
  for (int64_t first = 0; first < spec.tokens; first += kRowsOfOutput) {
    const int64_t rows = std::min(kRowsOfOutput, spec.tokens - first);
    const bool listed = outputs.size() % 2 != 0;
    v1::OutputChunk chunk;
    std::string payload;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t token = listed ? first + rows - 1 - i : first + i;
      payload += q.substr(static_cast<size_t>(token * row_bytes), static_cast<size_t>(row_bytes));
      if (listed) chunk.add_tokens(token);
    }
    chunk.MergeFrom(FakeOutput(v1::TENSOR_OUT, listed ? 0 : first, rows, std::move(payload)));
    outputs.push_back(std::move(chunk));
    if (want_lse) {
      outputs.push_back(FakeOutput(v1::TENSOR_LSE, first, rows, LseRows(spec, first, rows)));
    }
  }
  std::shuffle(outputs.begin(), outputs.end(), std::mt19937(1));
  return outputs;
}

bool WriteOutput(Stream* stream, v1::OutputChunk chunk) {
  v1::AttendResponse response;
  *response.mutable_output() = std::move(chunk);
  return stream->Write(response);
}

class FakeCall {
 public:
  FakeCall(const FakeBehaviour& behaviour, grpc::ServerContext* context, Stream* stream,
           FakeRecord& record)
      : behaviour_(behaviour), context_(context), stream_(stream), record_(record) {}

  grpc::Status Run() {
    v1::AttendResponse response;
    for (int i = behaviour_.queued; i > 0; --i) {
      response.mutable_queued()->set_position(i);
      stream_->Write(response);
    }
    if (behaviour_.refuse) return *behaviour_.refuse;
    spec_ = *wire::DecodeJobSpec(record_.open.spec());
    if (behaviour_.before_admitted) behaviour_.before_admitted();
    response.mutable_admitted()->set_job_id(record_.open.job_id());
    response.mutable_admitted()->set_max_payload_bytes(behaviour_.max_payload_bytes);
    response.mutable_admitted()->set_workers(2);
    if (!behaviour_.leave_out_admitted) stream_->Write(response);
    if (behaviour_.after_admitted) stream_->Write(*behaviour_.after_admitted);
    while (behaviour_.stall && !context_->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const bool by_reference = record_.open.files_size() > 0;
    if (!by_reference) {
      if (grpc::Status status = Receive(); !status.ok()) return status;
      if (!behaviour_.output_while_receiving) SendOutputs(response);
    }
    v1::Report& report = *response.mutable_report();
    report.set_job_id(record_.open.job_id());
    report.set_tokens(spec_.tokens);
    report.add_workers()->set_worker("localhost:1");
    stream_->Write(response);
    v1::AttendRequest request;
    while (behaviour_.await_close && stream_->Read(&request)) {
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status Receive() {
    const int64_t keys = KeyTokens(spec_);
    missing_ = spec_.tokens + 2 * keys;
    if (spec_.ordering && spec_.ordering->coordinate_axes > 0) missing_ += keys;
    v1::AttendRequest request;
    while (missing_ > 0 || !record_.open.can_resend()) {
      if (!stream_->Read(&request)) {
        record_.closed_early = record_.open.can_resend();
        break;
      }
      const v1::Chunk& chunk = request.chunk();
      record_.Keep(chunk, chunk.tensor() == v1::TENSOR_Q ? spec_.tokens : keys);
      missing_ -= chunk.rows();
      if (behaviour_.output_while_receiving && chunk.tensor() == v1::TENSOR_Q) {
        if (!WriteOutput(stream_, FakeOutput(v1::TENSOR_OUT, chunk.first_row(), chunk.rows(),
                                             chunk.payload()))) {
          break;
        }
      }
      const auto chunks = static_cast<int>(record_.chunks.size());
      if (behaviour_.fail && chunks > behaviour_.fail_after_chunks) return *behaviour_.fail;
      if (chunks == behaviour_.resend_after_chunks + 1) AskAgain();
    }
    if (missing_ != 0) return {grpc::StatusCode::INVALID_ARGUMENT, "rows are missing"};
    return grpc::Status::OK;
  }

  void AskAgain() {
    v1::AttendResponse response;
    for (const v1::Resend& resend : behaviour_.resends) {
      for (const v1::Resend::Range& range : resend.ranges()) Forget(resend.tensor(), range);
      *response.mutable_resend() = resend;
      stream_->Write(response);
    }
  }

  void Forget(v1::Tensor tensor, const v1::Resend::Range& range) {
    const auto kept = record_.tensors.find(tensor);
    const int64_t row_bytes = wire::TensorRowBytes(spec_, tensor);
    if (kept == record_.tensors.end()) return;
    std::memset(kept->second.data() + range.first_row() * row_bytes, 0xee,
                static_cast<size_t>(range.rows() * row_bytes));
    missing_ += range.rows();
  }

  void SendOutputs(v1::AttendResponse& last) {
    v1::AttendResponse response;
    response.mutable_progress()->set_phase(v1::Progress::PHASE_COMPUTE);
    response.mutable_progress()->set_fraction(0.5);
    stream_->Write(response);
    std::vector<v1::OutputChunk> outputs =
        EchoedOutputs(spec_, record_.open.want_lse(), record_.tensors[v1::TENSOR_Q]);
    if (behaviour_.change_outputs) behaviour_.change_outputs(outputs);
    for (v1::OutputChunk& output : outputs) {
      if (behaviour_.outputs_with_report) {
        *last.add_outputs() = std::move(output);
      } else if (!WriteOutput(stream_, std::move(output))) {
        break;
      }
    }
  }

  const FakeBehaviour& behaviour_;
  grpc::ServerContext* const context_;
  Stream* const stream_;
  FakeRecord& record_;
  JobSpec spec_;
  int64_t missing_ = 0;  // rows of all inputs
};

}  // namespace

FakeService::FakeService(FakeBehaviour behaviour, int port)
    : behaviour_(std::move(behaviour)), server_(*this, port) {}

FakeRecord FakeService::record() const {
  const std::lock_guard lock(mutex_);
  return records_.empty() ? FakeRecord() : records_.back();
}

std::vector<FakeRecord> FakeService::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

grpc::Status FakeService::Attend(grpc::ServerContext* context, Stream* stream) {
  v1::AttendRequest request;
  if (!stream->Read(&request) || !request.has_open()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "no Open"};
  }
  FakeRecord record{.open = request.open()};
  size_t call = 0;
  {
    const std::lock_guard lock(mutex_);
    call = records_.size();
    records_.push_back(record);
  }
  const FakeBehaviour& behaviour =
      call < behaviour_.earlier_calls.size() ? behaviour_.earlier_calls[call] : behaviour_;
  grpc::Status status = FakeCall(behaviour, context, stream, record).Run();
  if (!status.ok() && behaviour.retry_after) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", *behaviour.retry_after);
  }
  const std::lock_guard lock(mutex_);
  records_[call] = std::move(record);
  return status;
}

grpc::Status FakeService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                               v1::PlanResponse* response) {
  if (++plans_ <= behaviour_.refused_plans) {
    if (behaviour_.retry_after) {
      context->AddTrailingMetadata("grpc-retry-pushback-ms", *behaviour_.retry_after);
    }
    return *behaviour_.refuse;
  }
  const auto spec = wire::DecodeJobSpec(request->spec());
  if (!spec.ok()) return wire::ToGrpc(spec.status());
  const auto plan = MakePlan(*spec, request->workers() == 0 ? 2 : request->workers());
  if (!plan.ok()) return wire::ToGrpc(plan.status());
  *response = wire::EncodePlan(*plan);
  return grpc::Status::OK;
}

grpc::Status FakeService::GetDataRoot(grpc::ServerContext* context, const v1::GetDataRootRequest*,
                                      v1::GetDataRootResponse* response) {
  if (!behaviour_.data_root) return {grpc::StatusCode::UNIMPLEMENTED, ""};
  return behaviour_.data_root(*context, *response);
}

grpc::Status FakeService::GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                                     v1::GetClusterResponse* response) {
  response->set_version("7.8.9");
  response->set_ready(true);
  v1::ClusterWorker& worker = *response->add_workers();
  worker.set_address("localhost:8101");
  worker.set_kernel("cpu/test");
  worker.set_memory_limit_bytes(int64_t{3} << 30);
  v1::ClusterWorker& joining = *response->add_workers();
  joining.set_address("localhost:8102");
  joining.set_state(v1::ClusterWorker::STATE_JOINING);
  joining.set_reason("cannot be reached at localhost:8102: refused");
  v1::Ring& ring = *response->add_rings();
  ring.set_ring_id("ring-a");
  ring.set_generation(4);
  ring.add_members("localhost:8101");
  return grpc::Status::OK;
}

grpc::Status FakeService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                                   v1::ListJobsResponse* response) {
  v1::Job& job = *response->add_jobs();
  job.set_job_id("job-a");
  job.set_state(v1::Job::STATE_COMPUTING);
  job.set_tokens(4096);
  job.set_seconds(2.5);
  job.set_workers(3);
  job.set_fraction(0.25);
  job.set_attempt(1);
  return grpc::Status::OK;
}

grpc::Status FakeService::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                    v1::CancelJobResponse*) {
  if (request->job_id() == "job-a") return grpc::Status::OK;
  return wire::ToGrpc(wire::WithReason(absl::NotFoundError("no such job"), "JOB_NOT_FOUND"));
}

}  // namespace hilbert_ring::client
