#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/by_reference.h"
#include "tests/service/encode_call.h"
#include "tests/service/encode_cases.h"
#include "tests/support/cluster.h"
#include "tests/support/test_depth.h"
#include "tests/support/test_folder.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::ElementsAre;

// Files of encoders' jobs beneath a data root.
class EncodeFolder {
 public:
  explicit EncodeFolder(std::string root);  // makes the root

  std::string Argument() const { return "--data-root=" + root_; }

  std::vector<v1::TensorFile> Write(const v1::EncodeSpec& spec, const EncodeInputs& inputs) const;

  std::string PathOf(v1::Tensor tensor) const;

  std::vector<float> Read(v1::Tensor tensor, wire::NpyHeader* header = nullptr) const;

  std::vector<std::string> Names() const;

 private:
  const std::string root_;
};

template <typename T>
void WriteArray(const std::string& path, wire::NpyType type, std::vector<int64_t> shape,
                const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file << wire::FormatNpyHeader(type, shape);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

EncodeFolder::EncodeFolder(std::string root) : root_(std::move(root)) {
  std::filesystem::create_directories(root_);
}

std::string EncodeFolder::PathOf(v1::Tensor tensor) const {
  return absl::StrCat(root_, "/", wire::TensorName(tensor), ".npy");
}

std::vector<v1::TensorFile> EncodeFolder::Write(const v1::EncodeSpec& spec,
                                                const EncodeInputs& inputs) const {
  std::vector<v1::Tensor> tensors = {v1::TENSOR_TILES};
  WriteArray(PathOf(v1::TENSOR_TILES), wire::NpyType::kFloat32,
             {inputs.count, std::ssize(inputs.tiles) / inputs.count}, inputs.tiles);
  if (!inputs.coords.empty()) {
    tensors.push_back(v1::TENSOR_TILE_COORDS);
    WriteArray(PathOf(v1::TENSOR_TILE_COORDS), wire::NpyType::kFloat64, {inputs.count, 2},
               inputs.coords);
  }
  if (spec.pooling() == v1::POOLING_NONE) tensors.push_back(v1::TENSOR_STATES);
  if (spec.attention_map_layer() > 0) tensors.push_back(v1::TENSOR_ATTENTION_MAP);
  std::vector<v1::TensorFile> files;
  for (const v1::Tensor tensor : tensors) {
    files.emplace_back().set_tensor(tensor);
    files.back().set_path(absl::StrCat(wire::TensorName(tensor), ".npy"));
  }
  for (const v1::Tensor output : {v1::TENSOR_STATES, v1::TENSOR_ATTENTION_MAP}) {
    std::filesystem::remove(PathOf(output));
  }
  return files;
}

std::vector<float> EncodeFolder::Read(v1::Tensor tensor, wire::NpyHeader* header) const {
  std::ifstream file(PathOf(tensor), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto parsed = wire::ParseNpyHeader(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return {};
  EXPECT_EQ(parsed->type, wire::NpyType::kFloat32);
  EXPECT_EQ(std::ssize(text), parsed->data_offset + parsed->data_bytes);
  std::vector<float> values(static_cast<size_t>(parsed->data_bytes) / sizeof(float));
  std::memcpy(values.data(), text.data() + parsed->data_offset, values.size() * sizeof(float));
  if (header != nullptr) *header = *parsed;
  return values;
}

std::vector<std::string> EncodeFolder::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".root")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

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
