// Encoders whose tiles, coordinates, states and maps lie in files: every golden case is bit by bit
// what it is when its rows are sent.
#include "tests/service/encode_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/support/cluster.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Service {
  int workers = 2;
  WorkerPlace place = WorkerPlace::kLocal;
};

class EncodeFiles : public ::testing::Test {
 protected:
  void Start(const Service& service, std::vector<std::string> arguments = {}) {
    cluster_.reset();
    const std::string models =
        "--model-dir=" +
        std::filesystem::path(LoadEncoderCase("slide_small")->folder).parent_path().string();
    arguments.push_back(models);
    arguments.push_back(folder_.Argument());
    auto cluster = Cluster::Start({.workers = service.workers,
                                   .place = service.place,
                                   .arguments = arguments,
                                   .worker_arguments = {models, folder_.Argument()}});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    ASSERT_TRUE(AwaitDataRoot(*cluster_, service.workers));
  }

  static EncodeInputs InputsOf(const EncoderCase& golden) {
    int64_t tiles = 0;
    for (const int64_t of_slide : golden.slide_tiles) tiles += of_slide;
    return {.count = tiles, .tiles = golden.tiles, .coords = golden.coords};
  }

  absl::StatusOr<EncodeResult> ByReference(const v1::EncodeSpec& spec, const EncodeInputs& inputs) {
    return EncodeRaw(cluster_->Channel(), spec, inputs, {.files = folder_.Write(spec, inputs)});
  }

  // The outputs of both, of which POOLED comes as rows in both.
  EncodeResult ExpectAsSent(const v1::EncodeSpec& spec, const EncodeInputs& inputs) {
    const auto result = ByReference(spec, inputs);
    const auto sent = EncodeRaw(cluster_->Channel(), spec, inputs);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(sent.ok()) << sent.status();
    if (!result.ok() || !sent.ok()) return {};
    int64_t read = 0;
    for (const v1::WorkerReport& worker : result->report.workers()) {
      read += worker.file_bytes_read();
    }
    EXPECT_EQ(read, std::ssize(inputs.tiles) * 4 + std::ssize(inputs.coords) * 8);
    EncodeResult all = *result;
    for (const auto& [tensor, values] : sent->outputs) {
      if (tensor != v1::TENSOR_POOLED) {
        EXPECT_FALSE(all.outputs.contains(tensor));
        all.outputs[tensor] = folder_.Read(tensor);
      }
      EXPECT_EQ(all.outputs[tensor] == values, true) << tensor;
    }
    EXPECT_EQ(all.outputs.size(), sent->outputs.size());
    return all;
  }

  void CheckCase(const EncoderCase& golden) {
    const EncodeInputs inputs = InputsOf(golden);
    v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_NONE);
    EncodeResult result = ExpectAsSent(spec, inputs);
    EXPECT_EQ(EncoderMismatch(result.outputs[v1::TENSOR_STATES], golden.out), "");
    const int64_t layers = std::ssize(golden.states) / std::ssize(golden.out) - 1;
    for (int64_t state = layers; state >= 0; --state) spec.add_states(state);
    spec.add_states(layers);
    ExpectAsSent(spec, inputs);
    if (golden.attention_map.empty()) return;
    spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_MEAN);
    spec.set_attention_map_layer(layers);
    spec.set_attention_map_by_head(true);
    result = ExpectAsSent(spec, inputs);
    EXPECT_EQ(EncoderMismatch(result.outputs[v1::TENSOR_POOLED], golden.mean_out), "");
    const auto of_layer = std::ssize(golden.attention_map) / layers;
    EXPECT_EQ(EncoderMismatch(result.outputs[v1::TENSOR_ATTENTION_MAP],
                              std::span(golden.attention_map).last(of_layer),
                              1.0 / static_cast<double>(result.report.tokens())),
              "");
  }

  TestFolder test_folder_;
  const EncodeFolder folder_{test_folder_ / "root"};
  std::unique_ptr<Cluster> cluster_;
};

class EncodeFilesAll : public EncodeFiles, public ::testing::WithParamInterface<Service> {};

TEST_P(EncodeFilesAll, EveryCaseIsWhatItIsWhenSent) {
  Start(GetParam());
  for (const std::string& name : EncoderCaseNames()) {
    SCOPED_TRACE(name);
    const auto golden = LoadEncoderCase(name);
    ASSERT_TRUE(golden.ok()) << golden.status();
    CheckCase(*golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Services, EncodeFilesAll,
                         ::testing::Values(Service{1}, Service{2}, Service{3},
                                           Service{3, WorkerPlace::kRemote},
                                           Service{2, WorkerPlace::kUnshared}),
                         [](const auto& info) {
                           return absl::StrCat(PlaceName(info.param.place), info.param.workers);
                         });

// As clients write them who get rows.
TEST_F(EncodeFiles, ShapesAreThoseOfClients) {
  Start({});
  const auto golden = LoadEncoderCase("slide_small");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const EncodeInputs inputs = InputsOf(*golden);
  v1::EncodeSpec spec = SpecOf(golden->name, golden->slide_tiles, v1::POOLING_NONE);
  spec.set_attention_map_layer(1);
  const auto shapes = [&] {
    const auto result = ByReference(spec, inputs);
    EXPECT_TRUE(result.ok()) << result.status();
    wire::NpyHeader states, map;
    folder_.Read(v1::TENSOR_STATES, &states);
    folder_.Read(v1::TENSOR_ATTENTION_MAP, &map);
    return std::pair(states.shape, map.shape);
  };
  const auto [one, mean] = shapes();
  ASSERT_EQ(one.size(), 2u);
  EXPECT_THAT(mean, ElementsAre(one[0]));
  spec.add_states(0);
  spec.add_states(1);
  spec.set_attention_map_by_head(true);
  const auto [two, heads] = shapes();
  EXPECT_THAT(two, ElementsAre(one[0], 2, one[1]));
  EXPECT_THAT(
      heads,
      ElementsAre(one[0], std::ssize(golden->attention_map) /
                              (std::ssize(golden->states) / std::ssize(golden->out) - 1) / one[0]));
}

TEST_F(EncodeFiles, CoordinatesAreCheckedWhereTheyLie) {
  Start({});
  const auto golden = LoadEncoderCase("slide_small");
  ASSERT_TRUE(golden.ok()) << golden.status();
  EncodeInputs inputs = InputsOf(*golden);
  const v1::EncodeSpec spec = SpecOf(golden->name, golden->slide_tiles, v1::POOLING_NONE);
  inputs.coords.at(2 * 3 + 1) = -1;
  absl::Status status = ByReference(spec, inputs).status();
  EXPECT_EQ(wire::ReasonOf(status), "BAD_COORDINATES");
  EXPECT_THAT(std::string(status.message()), HasSubstr("3"));
  inputs.coords.clear();
  status = ByReference(spec, inputs).status();
  EXPECT_EQ(wire::ReasonOf(status), "INVALID_OPEN");
  EXPECT_THAT(std::string(status.message()), HasSubstr("TILE_COORDS is missing"));
  EXPECT_THAT(folder_.Names(), ElementsAre("TILES.npy", "TILE_COORDS.npy"));
}

}  // namespace
}  // namespace hilbert_ring::testing
