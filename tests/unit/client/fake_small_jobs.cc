#include "tests/unit/client/fake_small_jobs.h"

#include <utility>

#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

v1::SmallResult ResultOf(const v1::SmallJob& job, int64_t number, const absl::Status& status) {
  v1::SmallResult result;
  result.set_job(number);
  if (!status.ok()) {
    result.set_error(wire::ToGrpc(status).error_details());
    return result;
  }
  result.mutable_report()->set_tokens(job.open().spec().tokens());
  for (const v1::Chunk& rows : job.rows()) {
    if (rows.tensor() != v1::TENSOR_Q) continue;
    v1::OutputChunk& out = *result.add_outputs();
    out.set_tensor(v1::TENSOR_OUT);
    out.set_rows(rows.rows());
    out.set_payload(rows.payload());
    out.set_crc32c(rows.crc32c());
  }
  return result;
}

}  // namespace

FakeSmallJobs::FakeSmallJobs(Answer answer, int port)
    : answer_(std::move(answer)), server_(*this, port) {}

std::vector<std::vector<int64_t>> FakeSmallJobs::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

grpc::Status FakeSmallJobs::AttendMany(
    grpc::ServerContext*,
    grpc::ServerReaderWriter<v1::AttendManyResponse, v1::AttendManyRequest>* stream) {
  size_t call = 0;
  {
    const std::lock_guard lock(mutex_);
    call = calls_.size();
    calls_.emplace_back();
  }
  std::vector<int64_t> tokens;
  v1::AttendManyRequest request;
  while (stream->Read(&request)) {
    v1::AttendManyResponse response;
    for (const v1::SmallJob& job : request.jobs()) {
      const auto number = static_cast<int64_t>(tokens.size());
      tokens.push_back(job.open().spec().tokens());
      for (const absl::Status& status : answer_(static_cast<int>(call), number)) {
        *response.add_results() = ResultOf(job, number, status);
      }
    }
    stream->Write(response);
  }
  const std::lock_guard lock(mutex_);
  calls_[call] = std::move(tokens);
  return grpc::Status::OK;
}

}  // namespace hilbert_ring::client
