#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/encode_cases.h"

namespace hilbert_ring::testing {
namespace {

TEST(ServiceEncodeOnGpu, EveryCaseOfFewTiles) {
  const std::string models = "--model-dir=" + ModelsOfCases();
  const auto cluster =
      Cluster::Start({.workers = 1,
                      .place = WorkerPlace::kBeside,
                      // A layer takes tens of seconds on a busy machine.
                      .arguments = {models, "--stall-timeout=300"},
                      .worker_arguments = {models, "--device=cuda:0", "--model-memory=64MiB"},
                      .last_worker = HILBERT_RING_EMULATED_WORKER})
          .value();
  for (const std::string& name : EncoderCaseNames()) {
    // Its 1,500 tiles take long under emulation.
    if (name != "slide_published_pattern") CheckCase(*cluster, name);
  }
  const EncoderCase golden = LoadEncoderCase("slide_three_layers").value();
  const auto result =
      EncodeRaw(cluster->Channel(), SpecOf(golden.name, golden.slide_tiles, v1::POOLING_MEAN),
                InputsOf(golden));
  ASSERT_TRUE(result.ok()) << result.status();
  const v1::WorkerReport& worker = result->report.workers(0);
  EXPECT_THAT(worker.device(), ::testing::HasSubstr("Emulated GPU"));
  EXPECT_THAT(worker.kernel(), ::testing::StartsWith("cuda/"));
  EXPECT_LE(worker.memory_peak_bytes(), worker.memory_predicted_bytes());
  EXPECT_GE(static_cast<double>(worker.memory_peak_bytes()),
            0.85 * static_cast<double>(worker.memory_predicted_bytes()));
}

}  // namespace
}  // namespace hilbert_ring::testing
