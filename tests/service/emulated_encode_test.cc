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

absl::StatusOr<std::unique_ptr<Cluster>> StartOnGpu(const std::string& model_memory,
                                                    const std::vector<std::string>& further = {}) {
  const std::string models = "--model-dir=" + ModelsOfCases();
  // A layer takes seconds under emulation, and tens of them beside others' work.
  std::vector<std::string> arguments = {models, "--stall-timeout=300"};
  arguments.insert(arguments.end(), further.begin(), further.end());
  return Cluster::Start({.workers = 1,
                         .place = WorkerPlace::kBeside,
                         .arguments = arguments,
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

// Of a job with --check-rows=8.
void ExpectChecked(const Cluster& cluster, const v1::EncodeSpec& spec, const EncodeInputs& inputs,
                   const std::string& how) {
  const auto result = EncodeRaw(cluster.Channel(), spec, inputs);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->report.rows_checked(), 8);
  ASSERT_FALSE(result->report.notes().empty());
  EXPECT_THAT(*result->report.notes().rbegin(), HasSubstr(how));
}

// Drawn rows of every job are computed again by the coordinator.
TEST(ServiceEncodeOnGpu, RowsAreCheckedThroughAllLayersAndThroughOne) {
  const auto cluster = StartOnGpu("--model-memory=64MiB", {"--check-rows=8"});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto small = LoadEncoderCase("slide_small");
  ASSERT_TRUE(small.ok()) << small.status();
  ExpectChecked(**cluster, SpecOf(small->name, small->slide_tiles, v1::POOLING_NONE),
                InputsOf(*small), "through all");
  // More than all layers of it are affordable for.
  constexpr int64_t kTiles = 5000;
  ExpectChecked(**cluster, SpecOf(small->name, {kTiles}, v1::POOLING_NONE),
                ManyTiles(*small, kTiles, 3), "through layer");
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
