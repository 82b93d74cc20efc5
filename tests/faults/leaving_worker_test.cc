// A worker that leaves once it has done its part, while its outputs are on their way.
#include <signal.h>

#include <chrono>
#include <thread>

#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"
#include "tests/service/raw_call.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {
namespace {

TEST(LeavingWorker, ThatHasDoneItsPartTakesNothingWithIt) {
  const auto service = StartFaultCluster({.workers = 1, .place = WorkerPlace::kBeside}).value();
  const Cluster& cluster = *service;
  const auto stub = cluster.Stub();
  const FaultJob job = MakeZeroJob(65'536, 4, 32, 64);  // 32 MiB of output, little compute
  const JobSpec& spec = job.spec;
  RawCall call(*stub, std::chrono::seconds(60));
  ASSERT_TRUE(call.Open(spec, false) && call.AwaitAdmitted());
  const int64_t row_bytes = wire::TensorRowBytes(spec, v1::TENSOR_Q);
  for (const auto& [tensor, zeros] : job.tensors) {
    const int64_t step = (int64_t{1} << 20) / row_bytes;
    for (int64_t first = 0; first < spec.tokens; first += step) {
      ASSERT_TRUE(call.Send(MakeChunk(tensor, zeros, row_bytes, first, step)));
    }
  }
  call.WritesDone();
  // Nobody reads, and yet the worker ends: its rows lie in memory that the coordinator has too.
  const pid_t worker = cluster.Workers().at(0);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  kill(worker, SIGTERM);
  for (int i = 0; i < 500 && !cluster.Workers().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(cluster.Workers().empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));

  int64_t rows = 0;
  int retries = -1;
  v1::AttendResponse response;
  while (call.Read(&response)) {
    if (response.output().tensor() == v1::TENSOR_OUT) rows += response.output().rows();
    if (response.has_report()) retries = response.report().retries();
  }
  const absl::Status status = call.Finish();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(rows, spec.tokens);
  EXPECT_EQ(retries, 0);
}

}  // namespace
}  // namespace hilbert_ring::testing
