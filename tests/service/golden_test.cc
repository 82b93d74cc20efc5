// With shards in shared memory, with rows sent to workers, and with workers that refuse shared
// memory.
#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_golden.h"
#include "tests/golden/golden_case.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

void CheckEveryCase(const Cluster& cluster, int workers) {
  auto stub = cluster.Stub();
  const std::vector<std::string> names = GoldenCaseNames();
  ASSERT_GE(names.size(), 81u);
  int64_t bytes_exchanged = 0;
  for (const std::string& name : names) {
    const auto golden = LoadGoldenCase(name);
    ASSERT_TRUE(golden.ok()) << golden.status();
    const EngineInputs inputs = InputsOf(*golden);
    for (const DataType dtype : TypesThatHold(*golden)) {
      JobSpec spec = golden->spec;
      spec.dtype = dtype;
      const auto service = AttendRaw(*stub, spec, inputs, 37, 5);
      ASSERT_TRUE(service.ok()) << service.status() << " " << name;
      EXPECT_EQ(service->report.workers_size(), workers) << name;
      bytes_exchanged += service->report.bytes_exchanged();
      EXPECT_EQ(Mismatch(spec, service->result, ExpectGolden(*golden, dtype)), "")
          << name << " " << DataTypeName(dtype);
    }
  }
  EXPECT_EQ(bytes_exchanged > 0, workers > 1);
}

class ServiceGolden : public ::testing::TestWithParam<int> {};

TEST_P(ServiceGolden, EveryCase) {
  CheckEveryCase(*Cluster::Start({.workers = GetParam(), .arguments = {"--check-rows=4"}}).value(),
                 GetParam());
}

INSTANTIATE_TEST_SUITE_P(Workers, ServiceGolden,
                         ::testing::ValuesIn(AtDepth<std::vector<int>>({3}, {1, 3}, {1, 2, 3, 5})));

TEST(ServiceGoldenWithoutSharedMemory, RowsAreSent) {
  CheckEveryCase(*Cluster::Start({.workers = 2, .arguments = {"--share-memory=false"}}).value(), 2);
}

TEST(ServiceGoldenWithoutSharedMemory, WorkersRefuseIt) {
  const auto cluster = Cluster::Start({.workers = 2, .place = WorkerPlace::kUnshared}).value();
  CheckEveryCase(*cluster, 2);
  // The rows exceed one announcement, and are still few bytes.
  const JobSpec spec = PlainSpec({.tokens = 10'000, .heads = 1, .dim = 8, .segment = 50});
  const EngineInputs inputs = RandomInputs(spec, 3);
  const auto service = AttendRaw(*cluster->Stub(), spec, inputs, 500, 7);
  ASSERT_TRUE(service.ok()) << service.status();
  const auto engine = RunEngine(spec, inputs, 1, RingKind::kInProcess);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(service->result.out, engine->out);
  EXPECT_EQ(service->result.lse, engine->lse);
}

}  // namespace
}  // namespace hilbert_ring::testing
