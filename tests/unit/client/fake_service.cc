#include "tests/unit/client/fake_service.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/plan/plan.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using Stream = grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>;

v1::OutputChunk Output(v1::Tensor tensor, int64_t rows, std::string payload) {
  v1::OutputChunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_rows(rows);
  chunk.set_crc32c(wire::Crc32c(payload));
  chunk.set_payload(std::move(payload));
  return chunk;
}

// The log-sum-exp of token t is t, for every head.
std::string LseRows(const JobSpec& spec, int64_t first, int64_t rows) {
  std::vector<float> values;
  for (int64_t token = first; token < first + rows; ++token) {
    values.insert(values.end(), static_cast<size_t>(spec.heads), static_cast<float>(token));
  }
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Shuffled; every other chunk lists its tokens, in descending order.
std::vector<v1::OutputChunk> EchoedOutputs(const JobSpec& spec, bool want_lse, const std::string& q,
                                           int64_t rows_per_output) {
  const int64_t row_bytes = wire::TensorRowBytes(spec, v1::TENSOR_Q);
  std::vector<v1::OutputChunk> outputs;
  for (int64_t first = 0; first < spec.tokens; first += rows_per_output) {
    const int64_t rows = std::min(rows_per_output, spec.tokens - first);
    std::string payload;
    if (outputs.size() % 2 == 0) {
      payload =
          q.substr(static_cast<size_t>(first * row_bytes), static_cast<size_t>(rows * row_bytes));
    } else {
      for (int64_t token = first + rows - 1; token >= first; --token) {
        payload += q.substr(static_cast<size_t>(token * row_bytes), static_cast<size_t>(row_bytes));
      }
    }
    v1::OutputChunk chunk = Output(v1::TENSOR_OUT, rows, std::move(payload));
    if (outputs.size() % 2 == 0) {
      chunk.set_first_token(first);
    } else {
      for (int64_t token = first + rows - 1; token >= first; --token) chunk.add_tokens(token);
    }
    outputs.push_back(std::move(chunk));
    if (want_lse) {
      v1::OutputChunk lse = Output(v1::TENSOR_LSE, rows, LseRows(spec, first, rows));
      lse.set_first_token(first);
      outputs.push_back(std::move(lse));
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

}  // namespace

FakeService::FakeService(FakeBehaviour behaviour) : behaviour_(std::move(behaviour)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(wire::kMaxMessageBytes);
  server_ = builder.BuildAndStart();
}

FakeService::~FakeService() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

std::string FakeService::address()
    const {  // A number: c-ares 1.18 leaks the name when it resolves "localhost".
  return absl::StrCat("127.0.0.1:", port_);
}

FakeRecord FakeService::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

grpc::Status FakeService::Attend(grpc::ServerContext* context, Stream* stream) {
  v1::AttendRequest request;
  v1::AttendResponse response;
  if (!stream->Read(&request) || !request.has_open()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "no Open"};
  }
  FakeRecord record{.open = request.open()};
  const auto keep = [&] {
    const std::lock_guard lock(mutex_);
    record_ = record;
  };
  for (int i = behaviour_.queued; i > 0; --i) {
    response.mutable_queued()->set_position(i);
    stream->Write(response);
  }
  if (behaviour_.refuse) return *behaviour_.refuse;
  const JobSpec spec = *wire::DecodeJobSpec(record.open.spec());
  response.mutable_admitted()->set_job_id(record.open.job_id());
  response.mutable_admitted()->set_max_payload_bytes(behaviour_.max_payload_bytes);
  response.mutable_admitted()->set_workers(2);
  stream->Write(response);
  while (behaviour_.stall && !context->IsCancelled()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  int64_t missing = 3 * spec.tokens;
  if (spec.ordering && spec.ordering->coordinate_axes > 0) missing += spec.tokens;
  while (stream->Read(&request)) {
    v1::Chunk& chunk = *request.mutable_chunk();
    const int64_t row_bytes = wire::TensorRowBytes(spec, chunk.tensor());
    record.checksums_right &= wire::Crc32c(chunk.payload()) == chunk.crc32c();
    std::string& tensor = record.tensors[chunk.tensor()];
    tensor.resize(static_cast<size_t>(spec.tokens * row_bytes));
    std::memcpy(tensor.data() + chunk.first_row() * row_bytes, chunk.payload().data(),
                chunk.payload().size());
    missing -= chunk.rows();
    if (behaviour_.output_while_receiving && chunk.tensor() == v1::TENSOR_Q) {
      v1::OutputChunk output = Output(v1::TENSOR_OUT, chunk.rows(), chunk.payload());
      output.set_first_token(chunk.first_row());
      if (!WriteOutput(stream, std::move(output))) break;
    }
    chunk.clear_payload();
    record.chunks.push_back(chunk);
    if (behaviour_.fail && static_cast<int>(record.chunks.size()) > behaviour_.fail_after_chunks) {
      keep();
      return *behaviour_.fail;
    }
  }
  keep();
  if (missing != 0) return {grpc::StatusCode::INVALID_ARGUMENT, "rows are missing"};

  if (!behaviour_.output_while_receiving) {
    response.mutable_progress()->set_phase(v1::Progress::PHASE_COMPUTE);
    response.mutable_progress()->set_fraction(0.5);
    stream->Write(response);
    std::vector<v1::OutputChunk> outputs = EchoedOutputs(
        spec, record.open.want_lse(), record.tensors[v1::TENSOR_Q], behaviour_.rows_per_output);
    if (behaviour_.change_outputs) behaviour_.change_outputs(outputs);
    for (v1::OutputChunk& output : outputs) {
      if (!WriteOutput(stream, std::move(output))) break;
    }
  }
  if (behaviour_.leave_out_report) return grpc::Status::OK;
  v1::Report& report = *response.mutable_report();
  report.set_job_id(record.open.job_id());
  report.set_tokens(spec.tokens);
  report.add_workers()->set_worker("localhost:1");
  stream->Write(response);
  return grpc::Status::OK;
}

grpc::Status FakeService::Plan(grpc::ServerContext*, const v1::PlanRequest* request,
                               v1::PlanResponse* response) {
  const auto spec = wire::DecodeJobSpec(request->spec());
  if (!spec.ok()) return wire::ToGrpc(spec.status());
  const auto plan = MakePlan(*spec, request->workers() == 0 ? 2 : request->workers());
  if (!plan.ok()) return wire::ToGrpc(plan.status());
  *response = wire::EncodePlan(*plan);
  return grpc::Status::OK;
}

grpc::Status FakeService::GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                                     v1::GetClusterResponse* response) {
  response->set_version("7.8.9");
  response->set_ready(true);
  v1::ClusterWorker& worker = *response->add_workers();
  worker.set_address("localhost:8101");
  worker.set_kernel("cpu/test");
  worker.set_memory_limit_bytes(int64_t{3} << 30);
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
