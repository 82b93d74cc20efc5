// Every golden case of an encoder over several ranks. States, output and pooled vectors are within
// 2e-5 (1 + |x|) of the definition; in bfloat16 the error is at most 1.5 times PyTorch's within
// autocast.
#include <span>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/engine/load_encoder.h"
#include "tests/engine/run_encoder.h"
#include "tests/golden/encoder_case.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

std::vector<int64_t> AllStates(const EncoderConfig& config) {
  std::vector<int64_t> states;
  for (int64_t state = 0; state <= config.layers; ++state) states.push_back(state);
  return states;
}

struct Param {
  std::string name;
  int ranks = 1;
};

void PrintTo(const Param& param, std::ostream* out) {
  *out << param.name << " on " << param.ranks << " ranks";
}

class EncoderGolden : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    auto golden = LoadEncoderCase(GetParam().name);
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
    Load(DataType::kFloat32);
  }

  void Load(DataType compute, bool rounded = false) {
    auto model = LoadEncoder(golden_.folder, {.compute = compute, .rounded_products = rounded});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  EncoderResult Run(const EncoderOutputs& outputs) const {
    auto result = RunEncoder(
        model_,
        {.slide_tiles = golden_.slide_tiles, .tiles = golden_.tiles, .coords = golden_.coords},
        {.outputs = outputs, .ranks = GetParam().ranks, .instructions = instructions_});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : EncoderResult{.plan = {.rows = SlideRows({}, 0)}};
  }

  int64_t StateFloats() const { return static_cast<int64_t>(golden_.out.size()); }

  // Calls check(what, values, expected, PyTorch's autocast error) for states, output and pooled
  // vectors.
  template <typename Check>
  void ForRows(const Check& check) const {
    const int64_t last = model_->config().layers;
    const EncoderResult out = Run({.states = {last}});
    ASSERT_TRUE(out.states.contains(last));
    check("out", out.states.at(last), std::span(golden_.out), golden_.autocast.out);
    const EncoderResult all =
        Run({.states = AllStates(model_->config()), .final_norm = FinalNorm::kSkipped});
    ASSERT_EQ(std::ssize(all.states), last + 1);
    for (const auto& [state, values] : all.states) {
      check(absl::StrCat("state ", state), values,
            std::span(golden_.states).subspan(state * StateFloats(), StateFloats()),
            golden_.autocast.states.at(state));
    }
  }

  template <typename Check>
  void ForPools(const Check& check) const {
    const AutocastErrors& autocast = golden_.autocast;
    const int64_t last = model_->config().layers, states = last + 1;
    const auto slides = static_cast<int64_t>(golden_.slide_tiles.size());
    for (const Pooling pooling : {Pooling::kClass, Pooling::kMean}) {
      const bool of_class = pooling == Pooling::kClass;
      SCOPED_TRACE(of_class ? "class" : "mean");
      const EncoderResult out = Run({.states = {last}, .pooling = pooling});
      ASSERT_TRUE(out.pooled.contains(last));
      check("out", out.pooled.at(last), std::span(of_class ? golden_.class_out : golden_.mean_out),
            of_class ? autocast.class_out : autocast.mean_out);
      const EncoderResult all = Run({.states = AllStates(model_->config()),
                                     .final_norm = FinalNorm::kSkipped,
                                     .pooling = pooling});
      ASSERT_EQ(std::ssize(all.pooled), states);
      for (const auto& [state, values] : all.pooled) {
        const std::vector<float> expected =
            OfState(of_class ? golden_.class_states : golden_.mean_states, slides, states, state);
        check(absl::StrCat("state ", state), values, std::span(expected),
              (of_class ? autocast.class_states : autocast.mean_states).at(state));
      }
    }
  }

  EncoderCase golden_;
  std::shared_ptr<const EncoderModel> model_;
  std::string instructions_;
};

constexpr auto kExact = [](const std::string& what, const std::vector<float>& values,
                           std::span<const float> expected, double /*autocast*/) {
  EXPECT_EQ(EncoderMismatch(values, expected), "") << what;
};

TEST_P(EncoderGolden, Output) { ForRows(kExact); }

TEST_P(EncoderGolden, Pooled) {
  if (!golden_.class_out.empty()) return ForPools(kExact);
  const absl::Status status =
      CheckOutputs(model_->config(), {.states = {0}, .pooling = Pooling::kMean});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_P(EncoderGolden, AttentionMap) {
  const EncoderConfig& config = model_->config();
  EncoderOutputs outputs{.states = {config.layers}, .attention_map = AttentionMapOutput{}};
  if (!config.class_token) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckOutputs(config, outputs)));
    return;
  }
  const int64_t tokens = StateFloats() / config.embed_dim, of_layer = tokens * config.heads;
  ASSERT_EQ(std::ssize(golden_.attention_map), config.layers * of_layer);
  for (int64_t layer = 1; layer <= config.layers; ++layer) {
    const auto heads = std::span(golden_.attention_map).subspan((layer - 1) * of_layer, of_layer);
    outputs.attention_map = {.layer = layer, .columns = MapColumns::kHeads};
    EXPECT_EQ(EncoderMismatch(Run(outputs).map, heads, 1.0 / tokens), "") << "layer " << layer;
    std::vector<float> mean(tokens);
    for (int64_t i = 0; i < of_layer; ++i) {
      mean[i / config.heads] += heads[i] / static_cast<float>(config.heads);
    }
    outputs.attention_map->columns = MapColumns::kMeanOfHeads;
    EXPECT_EQ(EncoderMismatch(Run(outputs).map, mean, 1.0 / tokens), "") << "layer " << layer;
  }
}

// Bfloat16 products, their emulation, and attention by pairs of bfloat16 meet the same bound.
TEST_P(EncoderGolden, BFloat16) {
  const bool on_cpu = ModelDevice() == nullptr;
  for (const char* instructions : {"", "bf16-emulated"}) {
    if (!on_cpu && *instructions != 0) continue;
    instructions_ = instructions;
    for (const bool rounded : {false, true}) {
      SCOPED_TRACE(absl::StrCat(rounded ? "products of float32" : "the processor's products", " ",
                                instructions_));
      Load(DataType::kBFloat16, rounded);
      const auto check = [](const std::string& what, const std::vector<float>& values,
                            std::span<const float> expected, double autocast) {
        EXPECT_EQ(BFloat16Mismatch(values, expected, autocast), "") << what;
      };
      ForRows(check);
      if (!golden_.class_out.empty()) ForPools(check);
      const int64_t last = model_->config().layers;
      EXPECT_NE(Run({.states = {last}}).states.at(last), golden_.out) << "bfloat16 was not used";
    }
  }
}

std::vector<Param> Params() {
  const bool all = DepthOfTests() == TestDepth::kAll, on_cpu = ModelDevice() == nullptr;
  const std::vector<int> usual = on_cpu ? std::vector<int>{1, 3} : std::vector<int>{1};
  std::vector<Param> params;
  for (const std::string& name :
       on_cpu || all ? EncoderCaseNames() : SpreadOf(EncoderCaseNames(), 4)) {
    for (const int ranks : AtDepth<std::vector<int>>({2}, usual, {1, 2, 3, 5}))
      params.push_back({name, ranks});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Cases, EncoderGolden, ::testing::ValuesIn(Params()), [](const auto& info) {
  return info.param.name + "_" + std::to_string(info.param.ranks);
});

}  // namespace
}  // namespace hilbert_ring::testing
