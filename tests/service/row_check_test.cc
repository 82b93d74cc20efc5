#include <limits>

#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

TEST(CheckedRows, NonFiniteInputsQuarantineNoWorker) {
  const auto cluster = Cluster::Start({.workers = 2, .arguments = {"--check-rows=1000"}}).value();
  auto stub = cluster->Stub();
  const JobSpec spec = PlainSpec({.dim = 8, .segment = 16});
  const EngineInputs finite = RandomInputs(spec, 1);
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (int job = 0; job < 2; ++job) {
      EngineInputs inputs = finite;
      (job == 0 ? inputs.k : inputs.v)[20 * 16 + 3] = odd;
      const auto service = AttendRaw(*stub, spec, inputs, 37, 5);
      ASSERT_TRUE(service.ok()) << service.status();
      // Token 20 makes the 16 output rows of its segment [16, 32) non-finite.
      EXPECT_EQ(service->report.rows_not_judged(), 16) << odd;
      EXPECT_EQ(service->report.rows_checked(), 48) << odd;
    }
  }
  grpc::ClientContext context;
  v1::GetClusterResponse described;
  ASSERT_TRUE(stub->GetCluster(&context, {}, &described).ok());
  ASSERT_EQ(described.workers_size(), 2);
  for (const v1::ClusterWorker& worker : described.workers()) {
    EXPECT_EQ(worker.state(), v1::ClusterWorker::STATE_UP) << worker.address();
  }
}

}  // namespace
}  // namespace hilbert_ring::testing
