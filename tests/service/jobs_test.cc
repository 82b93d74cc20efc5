#include <random>

#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/random/random_spec.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

class ServiceJobs : public ::testing::TestWithParam<int> {};

TEST_P(ServiceJobs, AgreeWithTheReference) {
  const auto cluster = Cluster::Start({.workers = GetParam()}).value();
  auto stub = cluster->Stub();
  std::mt19937_64 random(77 + GetParam());
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};
  for (int trial = 0; trial < AtDepth(20, 20, 60); ++trial) {
    JobSpec spec = RandomSpec(random);
    if (trial % 2 == 0) MakeRectangular(spec, random);
    spec.dtype = kTypes[trial % 3];
    const EngineInputs inputs = RandomInputs(spec, random());
    const int64_t chunk_rows = 1 + static_cast<int64_t>(random() % 100);
    const auto service = AttendRaw(*stub, spec, inputs, chunk_rows, random());
    ASSERT_TRUE(service.ok()) << service.status() << " " << FormatJobSpec(spec);
    const auto expected = ExpectRows(spec, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(Mismatch(spec, service->result, *expected), "") << FormatJobSpec(spec);
    const auto plan = MakePlan(spec, GetParam());
    EXPECT_EQ(service->report.tokens(), spec.tokens);
    EXPECT_EQ(service->report.bytes_exchanged(), plan->costs.bytes_exchanged);
    EXPECT_EQ(service->report.bytes_exchanged_naive(), plan->costs.bytes_exchanged_naive);
    for (int rank = 0; rank < service->report.workers_size(); ++rank) {
      EXPECT_EQ(service->report.workers(rank).memory_peak_bytes(),
                plan->costs.workers[rank].resident_bytes());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, ServiceJobs,
                         ::testing::ValuesIn(AtDepth<std::vector<int>>({3}, {1, 3}, {1, 2, 3, 5})));

}  // namespace
}  // namespace hilbert_ring::testing
