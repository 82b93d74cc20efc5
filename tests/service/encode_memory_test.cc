#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/encoder_folder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/service/encode_call.h"
#include "tests/service/memory_watch.h"
#include "tests/support/cluster.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kTiles = 6000, kTileDim = 256;

// 40 MiB of weights outweigh the size of an idle process.
constexpr char kConfig[] =
    R"({"architecture": "longnet_encoder", "input_dim": 256, "embed_dim": 512, "heads": 8,
        "ffn_dim": 2048, "layers": 3, "segments": [1024, 4096], "dilations": [1, 2],
        "layer_norm_eps": 1e-5, "norm_eps": 1e-6, "class_token": true, "output_norm": true})";

// Random weights: workers of other tests must not share them.
void WriteModel(const std::string& folder) {
  const auto config = ParseEncoderConfig(kConfig);
  ASSERT_TRUE(config.ok()) << config.status();
  nlohmann::json header;
  int64_t bytes = 0;
  for (const WeightShape& weight : WeightShapes(*config)) {
    const int64_t end =
        bytes + std::accumulate(weight.shape.begin(), weight.shape.end(),
                                static_cast<int64_t>(sizeof(float)), std::multiplies<>());
    header[weight.name] = {
        {"dtype", "F32"}, {"shape", weight.shape}, {"data_offsets", {bytes, end}}};
    bytes = end;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::vector<float> values(bytes / sizeof(float));
  std::mt19937 random(static_cast<uint32_t>(getpid()));
  for (float& value : values) value = 0.1f * (static_cast<float>(random()) / 4294967296.0f - 0.5f);
  std::filesystem::create_directory(folder);
  std::ofstream(absl::StrCat(folder, "/", kConfigFile)) << kConfig;
  std::ofstream file(absl::StrCat(folder, "/", kWeightsFile), std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length)) << text;
  file.write(reinterpret_cast<const char*>(values.data()), bytes);
}

EncodeInputs RandomTiles(int64_t tiles) {
  EncodeInputs inputs{.count = tiles};
  std::mt19937 random(2);
  for (int64_t i = 0; i < tiles * kTileDim; ++i) {
    inputs.tiles.push_back(static_cast<float>(random()) / 2147483648.0f - 1);
  }
  return inputs;
}

int64_t BytesOf(const Cluster& cluster) {
  int64_t bytes = 0;
  for (const pid_t process : cluster.Processes()) bytes += ProportionalBytesOf(process);
  return bytes;
}

class EncodeMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kResidentBytesAreTheSanitizers) {
      GTEST_SKIP() << "resident bytes are the sanitizer's; jobs run in the other service tests";
    }
    WriteModel(models_ / "large");
    weight_bytes_ = WeightBytes(ParseEncoderConfig(kConfig).value(), DataType::kFloat32);
  }

  std::unique_ptr<Cluster> Start(int workers, const char* warm_up = "--warm-up=true") const {
    return Cluster::Start(
               {.workers = workers, .arguments = {"--model-dir=" + models_.path(), warm_up}})
        .value();
  }

  static v1::Report Encode(const Cluster& cluster, int64_t tiles) {
    return EncodeRaw(cluster.Channel(), SpecOf("large", {tiles}, v1::POOLING_MEAN),
                     RandomTiles(tiles))
        .value()
        .report;
  }

  // Bytes that loading the weights adds to all processes; no earlier job has left them memory.
  int64_t BytesOfLoading(int workers) const {
    const auto cluster = Start(workers, "--warm-up=false");
    const int64_t idle = BytesOf(*cluster);
    EXPECT_EQ(Encode(*cluster, 300).workers_size(), workers);
    return BytesOf(*cluster) - idle;
  }

  const TestFolder models_;
  int64_t weight_bytes_ = 0;  // packed
};

TEST_F(EncodeMemory, WorkersTakeTheirPlannedMemoryWhichShrinksWithTheirNumber) {
  int64_t before = 0;
  for (const int workers : {1, 2, 4}) {
    SCOPED_TRACE(workers);
    const auto cluster = Start(workers);
    Encode(*cluster, 300);  // loads the weights
    MemoryWatch watch(*cluster);
    const v1::Report report = Encode(*cluster, kTiles);
    watch.Stop();
    ASSERT_EQ(report.workers_size(), workers);
    std::vector<int64_t> planned;
    for (const v1::WorkerReport& worker : report.workers()) {
      planned.push_back(worker.memory_predicted_bytes());
      EXPECT_LE(worker.memory_peak_bytes(), planned.back());
      EXPECT_GE(static_cast<double>(worker.memory_peak_bytes()),
                0.85 * static_cast<double>(planned.back()));
    }
    std::ranges::sort(planned);
    const std::vector<int64_t> peaks = watch.WorkerPeaks();
    ASSERT_EQ(peaks.size(), planned.size());
    for (size_t i = 0; i < peaks.size(); ++i) {
      // The transport's buffers do not grow with the job, but weigh in a small one. The previous
      // job has left its memory to this one.
      EXPECT_LT(static_cast<double>(peaks[i]),
                1.15 * static_cast<double>(planned[i]) + 16.0 * kMiB);
      EXPECT_GT(static_cast<double>(peaks[i]),
                0.85 * static_cast<double>(planned[i]) - 16.0 * kMiB);
    }
    if (before > 0) {
      EXPECT_LT(peaks.back(), 0.75 * static_cast<double>(before));
    }
    before = peaks.back();
  }
}

TEST_F(EncodeMemory, WorkersOfAHostHaveTheWeightsOnce) {
  ASSERT_GT(weight_bytes_, 36 * kMiB);
  for (const int workers : {1, 4}) {
    SCOPED_TRACE(workers);
    const int64_t taken = BytesOfLoading(workers);
    EXPECT_GT(taken, weight_bytes_);
    // A small job leaves some memory behind in each process.
    EXPECT_LT(taken, 1.5 * static_cast<double>(weight_bytes_) + workers * 12.0 * kMiB);
  }
}

}  // namespace
}  // namespace hilbert_ring::testing
