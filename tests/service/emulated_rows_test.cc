// Rows of jobs on a GPU worker of the coordinator's host: copied between memory that both share and
// the emulated device.
#include <cstdlib>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_golden.h"
#include "tests/golden/golden_case.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::StartsWith;

constexpr char kCopied[] = "shared memory, copied to the device";

std::unique_ptr<Cluster> Start(WorkerPlace place, bool log_files = false) {
  return Cluster::Start({.workers = 1,
                         .place = place,
                         .arguments = {"--stall-timeout=300", "--check-rows=2"},
                         .worker_arguments = {"--device=cuda:0"},
                         .log_files = log_files,
                         .last_worker = HILBERT_RING_EMULATED_WORKER})
      .value();
}

TEST(ServiceOnGpu, EveryGoldenCase) {
  const auto cluster = Start(WorkerPlace::kBeside);
  for (const std::string& name : GoldenCaseNames()) {
    const GoldenCase golden = LoadGoldenCase(name).value();
    const DataType dtype = TypesThatHold(golden).back();
    JobSpec spec = golden.spec;
    spec.dtype = dtype;
    const auto service = AttendRaw(*cluster->Stub(), spec, InputsOf(golden), 37, 5);
    ASSERT_TRUE(service.ok()) << service.status() << " " << name;
    EXPECT_EQ(service->report.workers(0).rows_from(), kCopied);
    EXPECT_EQ(Mismatch(spec, service->result, ExpectGolden(golden, dtype)), "") << name;
  }
}

// The first job's rows go through pinned pieces. The memory is kept for the second, which pins it.
// Rows come while others are computed, and outputs leave.
TEST(ServiceOnGpu, MemoryThatIsUsedAgain) {
  for (const char* const defect : {"", "nopin"}) {
    setenv("EMULATED_GPU_DEFECT", defect, 1);
    const auto cluster = Start(WorkerPlace::kBeside, true);
    unsetenv("EMULATED_GPU_DEFECT");
    const JobSpec spec = PlainSpec({.tokens = 20'000, .heads = 1, .dim = 16, .segment = 40});
    const EngineInputs inputs[] = {RandomInputs(spec, 1), RandomInputs(spec, 2)};
    const auto sent = [&](int of) {
      const auto service = AttendRaw(*cluster->Stub(), spec, inputs[of], 3000, 7).value();
      EXPECT_EQ(service.report.workers(0).rows_from(), kCopied);
      return service.result.out;
    };
    const auto first = sent(0);
    EXPECT_NE(sent(1), first);
    EXPECT_EQ(sent(0), first);
    const bool pinned = *defect == '\0';
    EXPECT_NE(absl::StrContains(cluster->Logs(), "is copied through pinned pieces"), pinned);
  }
}

TEST(ServiceOnGpu, RowsOfAWorkerElsewhereComeInMessages) {
  const JobSpec spec = PlainSpec({.tokens = 300, .heads = 2, .dim = 16, .segment = 100});
  std::vector<std::vector<float>> outs;
  for (const WorkerPlace place :
       {WorkerPlace::kBeside, WorkerPlace::kRemote, WorkerPlace::kUnshared}) {
    const auto cluster = Start(place);
    const auto service = AttendRaw(*cluster->Stub(), spec, RandomInputs(spec, 3), 37, 5).value();
    EXPECT_THAT(service.report.workers(0).rows_from(),
                StartsWith(place == WorkerPlace::kBeside ? kCopied : "messages: "));
    outs.push_back(service.result.out);
  }
  EXPECT_EQ(outs[1], outs[0]);
  EXPECT_EQ(outs[2], outs[0]);
}

}  // namespace
}  // namespace hilbert_ring::testing
