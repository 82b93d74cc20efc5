#include "tests/service/raw_stream.h"

#include "gtest/gtest.h"
#include "tests/service/stream_call.h"
#include "tests/support/await.h"
#include "tests/support/metrics_page.h"
#include "tests/support/plain_spec.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {

using std::chrono::seconds;

JobSpec StreamSpec(int64_t segment, int64_t dim) {
  return PlainSpec({.tokens = 0, .dim = dim, .segment = segment});
}

int64_t HeldBytes(const Cluster& cluster) { return HeldBytes(cluster.Metrics()); }

int64_t HeldBytes(const absl::StatusOr<std::string>& page) {
  EXPECT_TRUE(page.ok()) << page.status();
  const auto held = ReadSeries(page.value_or(""),
                               "hilbert_ring_coordinator_memory_used_bytes{account=\"streams\"}");
  EXPECT_TRUE(held.ok()) << held.status();
  return static_cast<int64_t>(held.value_or(-1));
}

std::vector<v1::Job> Jobs(v1::AttentionService::Stub& stub) {
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  const grpc::Status status = stub.ListJobs(&context, {}, &jobs);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {jobs.jobs().begin(), jobs.jobs().end()};
}

void ExpectFree(const Cluster& cluster) {
  auto stub = cluster.Stub();
  EXPECT_TRUE(Await([&] { return Jobs(*stub).empty() && HeldBytes(cluster) == 0; }));
  const auto report = StreamConstantRows(cluster, StreamSpec(), 1000, {.epoch_tokens = 256});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), 1000);
}

RawStream::RawStream(v1::AttentionService::Stub& stub)
    : RawCall(stub, seconds(120), Method::kAttendStream) {}

bool RawStream::OpenEpochs(int64_t epoch_tokens, const JobSpec& spec, const std::string& job_id) {
  v1::AttendRequest request;
  *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  request.mutable_open()->set_epoch_tokens(epoch_tokens);
  request.mutable_open()->set_job_id(job_id);
  return Write(request);
}

bool RawStream::SendRows(v1::Tensor tensor, int64_t first, int64_t rows, const JobSpec& spec) {
  const int64_t row_bytes = wire::TensorRowBytes(spec, tensor);
  v1::Chunk chunk = MakeChunk(tensor, std::string(rows * row_bytes, '\0'), row_bytes, 0, rows);
  chunk.set_first_row(first);
  return Send(chunk);
}

bool RawStream::SendAll(int64_t first, int64_t rows, const JobSpec& spec) {
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    if (!SendRows(tensor, first, rows, spec)) return false;
  }
  return true;
}

absl::StatusOr<v1::Report> RawStream::Report() {
  v1::AttendResponse response;
  v1::Report report;
  while (Read(&response)) {
    if (response.has_report()) report = response.report();
  }
  absl::Status status = Finish();
  if (!status.ok()) return status;
  return report;
}

}  // namespace hilbert_ring::testing
