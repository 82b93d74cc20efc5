// Clients that read or send slowly: what they hold, for how long, and what is said of their time.
#include <algorithm>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kChunkRows = 4096;

// Cheap to compute, and its outputs are more than the transport holds: 32 MiB.
JobSpec LargeOutputs() { return PlainSpec({.tokens = 65'536, .dim = 64, .segment = 64}); }

// All rows but those from `end` on of V.
void SendUpTo(RawCall& call, const JobSpec& spec, int64_t end) {
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    const int64_t row_bytes = wire::TensorRowBytes(spec, tensor);
    const std::string data(kChunkRows * row_bytes, '\0');
    const int64_t rows = tensor == v1::TENSOR_V ? end : spec.tokens;
    for (int64_t first = 0; first < rows; first += kChunkRows) {
      v1::Chunk chunk = MakeChunk(tensor, data, row_bytes, 0, std::min(kChunkRows, rows - first));
      chunk.set_first_row(first);
      ASSERT_TRUE(call.Send(chunk));
    }
  }
}

bool WorkersIdleWithin(v1::AttentionService::Stub& stub, seconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    grpc::ClientContext context;
    v1::GetClusterResponse cluster;
    EXPECT_TRUE(stub.GetCluster(&context, {}, &cluster).ok());
    if (cluster.jobs_running() == 0) return true;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return false;
}

// What the client is told of it comes behind outputs that it may not have read in time.
TEST(SlowClient, AMessageReadNowAndThenLosesTheWorkers) {
  const auto cluster = Cluster::Start({.workers = 1,
                                       .arguments = {"--idle-timeout=3", "--least-rate=64MiB",
                                                     "--share-memory=false"},
                                       .spread = false,
                                       .log_files = true})
                           .value();
  auto stub = cluster->Stub();
  const JobSpec spec = LargeOutputs();
  RawCall call(*stub, seconds(120));
  ASSERT_TRUE(call.Open(spec) && call.AwaitAdmitted());
  SendUpTo(call, spec, spec.tokens);
  call.WritesDone();
  const auto start = std::chrono::steady_clock::now();
  v1::AttendResponse response;
  while (call.Read(&response)) std::this_thread::sleep_for(milliseconds(500));
  const absl::Status status = call.Finish();
  EXPECT_TRUE(wire::ReasonOf(status) == "CLIENT_SLOW" || absl::IsCancelled(status)) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
  EXPECT_TRUE(WorkersIdleWithin(*stub, seconds(10)));
  EXPECT_THAT(cluster->Logs(), AllOf(HasSubstr("code=DEADLINE_EXCEEDED"),
                                     HasSubstr("reason=CLIENT_SLOW, error=the client has read"),
                                     HasSubstr("the least rate is 67108864")));
}

}  // namespace
}  // namespace hilbert_ring::testing
