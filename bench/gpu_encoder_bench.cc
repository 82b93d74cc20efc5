// Tiles per second of an encoder of the published size on a GPU, with random weights.
//
//   gpu_encoder_bench [--kernel=cuda] [--compute=bfloat16] [--tiles=10000] [--quick]
//
// Prints a table's row: the median of runs from tiles in the GPU's memory to the mean of the last
// state on the host. Exits with 3 without a GPU, with 1 after a failure or a result that is not
// finite.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "bench/measure.h"
#include "bench/or_fail.h"
#include "engine/model/encoder_rank.h"
#include "engine/spec/job_spec_json.h"
#include "engine/spec/numbers.h"
#include "nlohmann/json.hpp"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring::bench {
namespace {

constexpr int kNoGpu = 3;
constexpr int kRuns = 5;

struct Options {
  std::string kernel = "cuda";
  DataType compute = DataType::kBFloat16;
  int64_t tiles = 10000;
  bool quick = false;  // a small model and slide
};

nlohmann::json ConfigOf(const Options& options) {
  nlohmann::json config = {
      {"architecture", "longnet_encoder"},
      {"input_dim", 1536},
      {"embed_dim", 768},
      {"heads", 16},
      {"ffn_dim", 3072},
      {"layers", 12},
      {"segments", {1024, 5792, 32768, 185363, 1048576}},
      {"dilations", {1, 2, 4, 8, 16}},
      {"layer_norm_eps", 1e-5},
      {"norm_eps", 1e-6},
      {"class_token", true},
      {"output_norm", true},
      {"position", {{"kind", "sincos_2d"}, {"tile_size", 256}, {"grid", 1000}}}};
  if (options.quick) {
    config.update(
        {{"input_dim", 48}, {"embed_dim", 64}, {"heads", 4}, {"ffn_dim", 96}, {"layers", 2}});
    config.update({{"segments", {16, 64}}, {"dilations", {1, 2}}});
  }
  return config;
}

// A model's folder in bfloat16: matrices with standard deviation 0.02, norms of 1.
void WriteModel(const std::string& folder, const nlohmann::json& config) {
  std::ofstream(folder + "/config.json") << config;
  const EncoderConfig parsed = OrFail(ParseEncoderConfig(config.dump()));
  nlohmann::json header = nlohmann::json::object();
  int64_t bytes = 0;
  for (const WeightShape& weight : WeightShapes(parsed)) {
    int64_t end = bytes + 2;
    for (const int64_t size : weight.shape) end = bytes + (end - bytes) * size;
    header[weight.name] = {
        {"dtype", "BF16"}, {"shape", weight.shape}, {"data_offsets", {bytes, end}}};
    bytes = end;
  }
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<uint16_t> numbers(1 << 16), ones;
  for (uint16_t& number : numbers) number = FloatToBFloat16(normal(random));
  std::ofstream file(folder + "/model.safetensors", std::ios::binary);
  const std::string text = header.dump();
  const auto length = static_cast<uint64_t>(text.size());
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  for (const WeightShape& weight : WeightShapes(parsed)) {
    const auto& offsets = header[weight.name]["data_offsets"];
    int64_t left = (offsets[1].get<int64_t>() - offsets[0].get<int64_t>()) / 2;
    const bool of_norm = weight.shape.size() == 1 && weight.name.ends_with("weight");
    ones.assign(of_norm ? numbers.size() : 0, FloatToBFloat16(1));
    const std::vector<uint16_t>& from = of_norm ? ones : numbers;
    for (; left > 0; left -= static_cast<int64_t>(from.size())) {
      file.write(reinterpret_cast<const char*>(from.data()),
                 2 * std::min<int64_t>(left, static_cast<int64_t>(from.size())));
    }
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + folder);
}

struct Measured {
  double seconds = 0;  // median of the runs
  EncoderFigures figures;
};

Measured Measure(const Options& options, const std::shared_ptr<const EncoderModel>& model,
                 Device& device) {
  const EncoderConfig& config = model->config();
  const EncoderPlan plan = OrFail(MakeEncoderPlan(config, options.compute, {options.tiles}, 1));
  std::vector<float> tiles(options.tiles * config.tile_dim());
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal(0, 1);
  for (float& value : tiles) value = normal(random);
  std::vector<double> coords;
  for (int64_t i = 0; i < options.tiles; ++i) {
    const int64_t row = i / 128, column = i % 128;
    coords.insert(coords.end(),
                  {256.0 * static_cast<double>(column), 256.0 * static_cast<double>(row)});
  }
  const auto bytes = static_cast<int64_t>(tiles.size() * sizeof(float));
  const auto on_device = OrFail(device.Allocate(bytes));
  OrFail(device.CopyIn(on_device->data(), tiles.data(), bytes));
  Measured measured;
  std::vector<double> seconds;
  for (int run = 0; run <= kRuns; ++run) {
    const auto rank = OrFail(EncoderRank::Make(
        model, plan, 0, device, {.states = {config.layers}, .pooling = Pooling::kMean}));
    PooledPart part;
    const double of_run = SecondsOf([&] {
      OrFail(rank->PlaceTiles(
          {.count = options.tiles, .values = on_device->data(), .coords = coords}, {}));
      measured.figures =
          OrFail(rank->Run(nullptr, 0, {.pooled = [&](int64_t, const PooledPart& sums) {
                             part = sums;
                             return absl::OkStatus();
                           }}));
    });
    if (!std::ranges::all_of(part.sums, [](double sum) { return std::isfinite(sum); }) ||
        part.sums.empty()) {
      throw std::runtime_error("the pooled vector is not finite");
    }
    if (run > 0) seconds.push_back(of_run);  // the first run chooses algorithms
  }
  std::ranges::sort(seconds);
  measured.seconds = seconds[seconds.size() / 2];
  return measured;
}

void Run(const Options& options) {
  const auto device = OrFail(MakeDevice(OptionsFor(options.kernel, 0)));
  OrFail(device->row_math().status());
  const std::string folder =
      (std::filesystem::temp_directory_path() / absl::StrCat("gpu_encoder_bench.", getpid()))
          .string();
  std::filesystem::create_directory(folder);
  const absl::Cleanup remove = [&] { std::filesystem::remove_all(folder); };
  WriteModel(folder, ConfigOf(options));
  FileDigests digests;
  const auto model =
      OrFail(EncoderModel::Load(OrFail(EncoderFolder::Open(folder, digests)),
                                {.compute = options.compute, .device = device.get()}));
  const Measured measured = Measure(options, model, *device);
  const double flops = measured.figures.product_flops + measured.figures.attention_flops;
  absl::PrintF("| kernel | compute | tiles | seconds | tiles/s | TFLOP/s | share of attention |\n");
  absl::PrintF("| --- | --- | --- | --- | --- | --- | --- |\n");
  absl::PrintF("| %s | %s | %d | %.5f | %.6g | %.4g | %.2f |\n", device->info().kernel,
               options.compute == DataType::kBFloat16 ? "bfloat16" : "float32", options.tiles,
               measured.seconds, static_cast<double>(options.tiles) / measured.seconds,
               flops / measured.seconds / 1e12,
               measured.figures.attention_seconds /
                   (measured.figures.attention_seconds + measured.figures.row_seconds));
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (absl::ConsumePrefix(&word, "--kernel=")) {
      options.kernel = std::string(word);
    } else if (absl::ConsumePrefix(&word, "--compute=")) {
      options.compute = OrFail(ParseDataType(std::string(word)));
    } else if (absl::ConsumePrefix(&word, "--tiles=")) {
      if (!absl::SimpleAtoi(word, &options.tiles) || options.tiles < 1) {
        throw std::runtime_error(absl::StrCat("--tiles is ", word, ", must be at least 1"));
      }
    } else if (word == "--quick") {
      options.quick = true;
      options.tiles = 100;
    } else {
      throw std::runtime_error(absl::StrCat("no option: ", argv[i]));
    }
  }
  return options;
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  using hilbert_ring::bench::kNoGpu;
  try {
    const auto options = hilbert_ring::bench::Parse(argc, argv);
    if (const absl::Status gpu = hilbert_ring::FindCudaDevice(0); !gpu.ok()) {
      std::fprintf(stderr, "gpu_encoder_bench: %s\n", std::string(gpu.message()).c_str());
      return kNoGpu;
    }
    hilbert_ring::bench::Run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_encoder_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
