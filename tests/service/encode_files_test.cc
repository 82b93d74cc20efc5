#include "tests/service/encode_files.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_cases.h"
#include "tests/support/cluster.h"
#include "tests/support/test_depth.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::ElementsAre;

struct Service {
  int workers = 2;
  WorkerPlace place = WorkerPlace::kLocal;
};

class EncodeFiles : public ::testing::Test {
 protected:
  void Start(const Service& service) {
    const std::vector<std::string> arguments = {"--model-dir=" + ModelsOfCases(),
                                                folder_.Argument()};
    cluster_ = Cluster::Start({.workers = service.workers,
                               .place = service.place,
                               .arguments = arguments,
                               .worker_arguments = arguments})
                   .value();
    ASSERT_TRUE(AwaitDataRoot(*cluster_, service.workers));
  }

  absl::StatusOr<EncodeResult> ByReference(const v1::EncodeSpec& spec, const EncodeInputs& inputs) {
    return EncodeRaw(cluster_->Channel(), spec, inputs, {.files = folder_.Write(spec, inputs)});
  }

  // POOLED comes as rows in both.
  void ExpectAsSent(const v1::EncodeSpec& spec, const EncodeInputs& inputs) {
    EncodeResult result = ByReference(spec, inputs).value();
    const EncodeResult sent = EncodeRaw(cluster_->Channel(), spec, inputs).value();
    int64_t read = 0;
    for (const v1::WorkerReport& worker : result.report.workers()) {
      read += worker.file_bytes_read();
    }
    EXPECT_EQ(read, std::ssize(inputs.tiles) * 4 + std::ssize(inputs.coords) * 8);
    for (const auto& [tensor, values] : sent.outputs) {
      if (tensor != v1::TENSOR_POOLED) {
        EXPECT_FALSE(result.outputs.contains(tensor));
        result.outputs[tensor] = folder_.Read(tensor);
      }
      EXPECT_EQ(result.outputs[tensor] == values, true) << tensor;
    }
    EXPECT_EQ(result.outputs.size(), sent.outputs.size());
  }

  TestFolder test_folder_;
  const EncodeFolder folder_{test_folder_ / "root"};
  std::unique_ptr<Cluster> cluster_;
};

class EncodeFilesAll : public EncodeFiles, public ::testing::WithParamInterface<Service> {};

TEST_P(EncodeFilesAll, EveryCaseHasTheBitsOfItsSentRows) {
  Start(GetParam());
  for (const std::string& name : EncoderCaseNames()) {
    SCOPED_TRACE(name);
    const EncoderCase golden = LoadEncoderCase(name).value();
    const EncodeInputs inputs = InputsOf(golden);
    v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_NONE);
    ExpectAsSent(spec, inputs);
    const int64_t layers = std::ssize(golden.states) / std::ssize(golden.out) - 1;
    for (int64_t state = layers; state >= 0; --state) spec.add_states(state);
    spec.add_states(layers);
    ExpectAsSent(spec, inputs);
    if (golden.attention_map.empty()) continue;
    spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_MEAN);
    spec.set_attention_map_layer(layers);
    spec.set_attention_map_by_head(true);
    ExpectAsSent(spec, inputs);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Services, EncodeFilesAll,
    ::testing::ValuesIn(AtDepth<std::vector<Service>>(
        {{3}}, {{1}, {3, WorkerPlace::kUnshared}},
        {{1}, {2}, {3}, {3, WorkerPlace::kRemote}, {3, WorkerPlace::kUnshared}})),
    [](const auto& info) { return absl::StrCat(PlaceName(info.param.place), info.param.workers); });

// Clients that receive rows write files of the same shapes.
TEST_F(EncodeFiles, ShapesAreThoseOfClients) {
  Start({});
  const EncoderCase golden = LoadEncoderCase("slide_small").value();
  v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_NONE);
  spec.set_attention_map_layer(1);
  const auto shapes = [&] {
    const auto result = ByReference(spec, InputsOf(golden));
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
  const int64_t layers = std::ssize(golden.states) / std::ssize(golden.out) - 1;
  EXPECT_THAT(heads, ElementsAre(one[0], std::ssize(golden.attention_map) / layers / one[0]));
}

TEST_F(EncodeFiles, CoordinatesAreCheckedWhereTheyLie) {
  Start({});
  const EncoderCase golden = LoadEncoderCase("slide_small").value();
  EncodeInputs inputs = InputsOf(golden);
  const v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_NONE);
  inputs.coords.at(2 * 3 + 1) = -1;
  EXPECT_EQ(wire::ReasonOf(ByReference(spec, inputs).status()), "BAD_COORDINATES");
  inputs.coords.clear();
  EXPECT_EQ(wire::ReasonOf(ByReference(spec, inputs).status()), "INVALID_OPEN");
  EXPECT_THAT(folder_.Names(), ElementsAre("TILES.npy", "TILE_COORDS.npy"));
}

}  // namespace
}  // namespace hilbert_ring::testing
