#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/support/cluster.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kTiles = 300'000, kMostTiles = 2'400'000;
constexpr char kModel[] = "slide_three_layers";

struct Param {
  WorkerPlace place;
  double from;
};

class EncodeKill : public ::testing::TestWithParam<Param> {};

// Kills the second worker at this part of the pass. False if the job ended before the kill affected
// it: progress comes five times a second.
bool KillsInTime(const EncoderCase& golden, const Param& param, int64_t tiles) {
  const std::string models = std::filesystem::path(golden.folder).parent_path().string();
  const auto cluster = Cluster::Start({.workers = 3,
                                       .place = param.place,
                                       .arguments = {"--model-dir=" + models},
                                       .worker_arguments = {"--model-dir=" + models}})
                           .value();
  const EncodeInputs inputs = ManyTiles(golden, tiles, 7);
  v1::EncodeSpec spec = SpecOf(kModel, {tiles}, v1::POOLING_MEAN);
  const EncodeResult undisturbed = EncodeRaw(cluster->Channel(), spec, inputs).value();
  EXPECT_EQ(undisturbed.report.retries(), 0);

  bool killed = false;
  int64_t layers = 0;
  const pid_t victim = cluster->Workers().at(1);
  const EncodeResult disturbed = EncodeRaw(cluster->Channel(), spec, inputs,
                                           {.progress =
                                                [&](const v1::Progress& at) {
                                                  layers = std::max(layers, at.layer());
                                                  if (killed || at.fraction() < param.from) return;
                                                  killed = true;
                                                  kill(victim, SIGKILL);
                                                }})
                                     .value();
  EXPECT_EQ(EncoderMismatch(disturbed.outputs.at(v1::TENSOR_POOLED),
                            undisturbed.outputs.at(v1::TENSOR_POOLED)),
            "");
  if (disturbed.report.retries() == 0) return false;
  EXPECT_EQ(disturbed.report.retries(), 1);
  EXPECT_GE(layers, 1);
  EXPECT_LE(layers, 3);
  return true;
}

TEST_P(EncodeKill, TheEmbeddingIsRight) {
  const EncoderCase golden = LoadEncoderCase(kModel).value();
  int64_t tiles = kTiles;
  while (!KillsInTime(golden, GetParam(), tiles)) {
    tiles *= 2;
    ASSERT_LE(tiles, kMostTiles) << "no kill affected a job";
  }
}

INSTANTIATE_TEST_SUITE_P(Thirds, EncodeKill,
                         ::testing::ValuesIn(AtDepth<std::vector<Param>>(
                             {{WorkerPlace::kLocal, 0.35}},
                             {{WorkerPlace::kLocal, 0.05}, {WorkerPlace::kRemote, 0.7}},
                             {{WorkerPlace::kLocal, 0.05},
                              {WorkerPlace::kLocal, 0.35},
                              {WorkerPlace::kLocal, 0.7},
                              {WorkerPlace::kRemote, 0.35}})),
                         [](const auto& info) {
                           return std::string(PlaceName(info.param.place)) + "_" +
                                  std::to_string(static_cast<int>(100 * info.param.from));
                         });

}  // namespace
}  // namespace hilbert_ring::testing
