// Encoders through the real service on a worker with an emulated GPU.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/encode_cases.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<std::unique_ptr<Cluster>> StartOnGpu(const std::string& model_memory) {
  const std::string models = "--model-dir=" + ModelsOfCases();
  // A layer takes seconds under emulation, and tens of them beside others' work.
  return Cluster::Start({.workers = 1,
                         .place = WorkerPlace::kBeside,
                         .arguments = {models, "--stall-timeout=300"},
                         .worker_arguments = {models, "--device=cuda:0", model_memory},
                         .last_worker = HILBERT_RING_EMULATED_WORKER});
}

TEST(ServiceEncodeOnGpu, EveryCaseOfFewTiles) {
  const auto cluster = StartOnGpu("--model-memory=64MiB");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  for (const std::string& name : EncoderCaseNames()) {
    // Its 1,500 tiles take long under emulation.
    if (name != "slide_published_pattern") CheckCase(**cluster, name);
  }
}

// What each worker is said to take is what it took, and the report names its kernel.
TEST(ServiceEncodeOnGpu, ReportsNameTheDeviceAndItsMemory) {
  const auto cluster = StartOnGpu("--model-memory=64MiB");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto golden = LoadEncoderCase("slide_three_layers");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const auto result =
      EncodeRaw((*cluster)->Channel(), SpecOf(golden->name, golden->slide_tiles, v1::POOLING_MEAN),
                InputsOf(*golden));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->report.workers_size(), 1);
  const v1::WorkerReport& worker = result->report.workers(0);
  EXPECT_THAT(worker.device(), HasSubstr("Emulated GPU"));
  EXPECT_THAT(worker.kernel(), StartsWith("cuda/"));
  EXPECT_LE(worker.memory_peak_bytes(), worker.memory_predicted_bytes());
  EXPECT_GE(static_cast<double>(worker.memory_peak_bytes()),
            0.85 * static_cast<double>(worker.memory_predicted_bytes()));
}

TEST(ServiceEncodeOnGpu, WeightsTakeNoMoreThanTheirMemory) {
  const auto cluster = StartOnGpu("--model-memory=10KiB");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto golden = LoadEncoderCase("slide_three_layers");
  const auto result =
      EncodeRaw((*cluster)->Channel(), SpecOf(golden->name, golden->slide_tiles, v1::POOLING_MEAN),
                InputsOf(*golden));
  EXPECT_EQ(wire::ReasonOf(result.status()), wire::reason::kModelNotOnWorkers.name)
      << result.status();
}

}  // namespace
}  // namespace hilbert_ring::testing
