// Callers that take what they can, by intent or by mistake: threads, memory, places. The service
// refuses them, and serves the others meanwhile.
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "tests/sanitizer.h"
#include "tests/service/cluster.h"
#include "tests/service/raw_call.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

JobSpec Spec(int64_t tokens) {
  JobSpec spec;
  spec.tokens = tokens;
  spec.heads = spec.kv_heads = 2;
  spec.head_dim = spec.value_dim = 16;
  spec.branches = {{tokens, 1}};
  return spec;
}

// Bytes that were resident at their most since the process started.
int64_t PeakBytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    int64_t kib = 0;
    if (parts.size() > 1 && parts[0] == "VmHWM" && absl::SimpleAtoi(parts[1], &kib)) {
      return kib << 10;
    }
  }
  return 0;
}

// Of a client that may send anything.
std::shared_ptr<grpc::Channel> UnboundedChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void ExpectAJobIsRight(const Cluster& cluster) {
  const JobSpec spec = Spec(64);
  const auto result = AttendRaw(*cluster.Stub(), spec, RandomInputs(spec, 1), 32, 1);
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(Callers, CompressedZerosTakeNoMemory) {
  if (kResidentBytesAreTheSanitizers) GTEST_SKIP() << "resident bytes are the sanitizer's";
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ExpectAJobIsRight(**cluster);
  grpc::ClientContext cluster_context;
  v1::GetClusterResponse described;
  ASSERT_TRUE((*cluster)->Stub()->GetCluster(&cluster_context, {}, &described).ok());
  const pid_t worker = (*cluster)->WorkerPids().at(0);
  const int64_t coordinator_before = PeakBytes((*cluster)->pid());
  const int64_t worker_before = PeakBytes(worker);
  const std::string zeros(256 * kMiB, '\0');

  const auto channel = UnboundedChannel((*cluster)->address());
  const auto public_stub = v1::AttentionService::NewStub(channel);
  {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    const auto stream = public_stub->Attend(&context);
    v1::AttendRequest request;
    request.mutable_chunk()->set_payload(zeros);
    stream->Write(request);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::CancelJobRequest request;
    request.set_job_id(zeros);
    v1::CancelJobResponse response;
    EXPECT_EQ(public_stub->CancelJob(&context, request, &response).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  {
    const auto stub = v1::WorkerService::NewStub(UnboundedChannel(described.workers(0).address()));
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    const auto stream = stub->Run(&context);
    v1::RunRequest request;
    request.mutable_rows()->set_payload(zeros);
    stream->Write(request);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  RecordProperty("coordinator_mib", (PeakBytes((*cluster)->pid()) - coordinator_before) / kMiB);
  RecordProperty("worker_mib", (PeakBytes(worker) - worker_before) / kMiB);
  EXPECT_LT(PeakBytes((*cluster)->pid()) - coordinator_before, 16 * kMiB);
  EXPECT_LT(PeakBytes(worker) - worker_before, 16 * kMiB);
  ExpectAJobIsRight(**cluster);
}

}  // namespace
}  // namespace hilbert_ring::testing
