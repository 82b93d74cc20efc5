#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/memory_watch.h"
#include "tests/service/raw_call.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The job is cheap to compute; its outputs, 64 MiB, exceed the transport's buffers.
JobSpec LargeOutputs() { return PlainSpec({.tokens = 131'072, .dim = 64, .segment = 64}); }

void Send(RawCall& call) {
  std::atomic<int64_t> sent = 0;
  ASSERT_TRUE(call.Open(LargeOutputs(), false) && call.AwaitAdmitted());
  SendConstantRows(call, LargeOutputs(), sent, false);
  call.WritesDone();
}

// The error follows outputs that the client may not read in time.
TEST(SlowClient, AMessageReadNowAndThenLosesTheWorkers) {
  const auto cluster = Cluster::Start({.workers = 1,
                                       .arguments = {"--idle-timeout=3", "--least-rate=64MiB",
                                                     "--share-memory=false"},
                                       .spread = false,
                                       .log_files = true})
                           .value();
  const auto stub = cluster->Stub();
  RawCall call(*stub, seconds(120));
  Send(call);
  const auto start = std::chrono::steady_clock::now();
  v1::AttendResponse response;
  while (call.Read(&response)) std::this_thread::sleep_for(milliseconds(500));
  const absl::Status status = call.Finish();
  EXPECT_TRUE(wire::ReasonOf(status) == "CLIENT_IDLE" || absl::IsCancelled(status)) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
  EXPECT_TRUE(Await([&] { return cluster->Describe().value().jobs_running() == 0; }, seconds(10)));
  Await([&] { return cluster->Logs().find("DEADLINE_EXCEEDED") != std::string::npos; },
        seconds(10));
  EXPECT_THAT(cluster->Logs(), AllOf(HasSubstr("code=DEADLINE_EXCEEDED"),
                                     HasSubstr("reason=CLIENT_IDLE, error=the client has read"),
                                     HasSubstr("the least rate is 67108864")));
}

}  // namespace
}  // namespace hilbert_ring::testing
