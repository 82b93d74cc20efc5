#include "engine/model/files/pooling.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

EncoderConfig Config() {
  return {.embed_dim = 32, .heads = 4, .layers = 3, .norm_eps = 1e-6, .class_token = true};
}

std::string MessageOf(const EncoderConfig& config, const EncoderOutputs& outputs) {
  const absl::Status status = CheckOutputs(config, outputs);
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

TEST(Outputs, OfTheModel) {
  EXPECT_TRUE(CheckOutputs(Config(), {.states = {0, 2, 3}, .pooling = Pooling::kClass}).ok());
  EXPECT_THAT(MessageOf(Config(), {}), HasSubstr("states is empty"));
  EXPECT_EQ(MessageOf(Config(), {.states = {1, 4}}),
            "states[1] is 4, must be 0 to 3, the model's layers");
  EXPECT_THAT(MessageOf(Config(), {.states = {-1}}), HasSubstr("states[0] is -1"));
  EXPECT_EQ(MessageOf(Config(), {.states = std::vector<int64_t>(4097, 2)}),
            "states has 4097 entries, must have at most 4096");
}

TEST(Outputs, AMapIsOfALayerAndNeedsAClassToken) {
  EncoderConfig config = Config();
  EncoderOutputs outputs{.states = {3}, .attention_map = AttentionMapOutput{.layer = 3}};
  EXPECT_TRUE(CheckOutputs(config, outputs).ok());
  EXPECT_EQ(MapColumnsOf(config, outputs), 1);
  outputs.attention_map->columns = MapColumns::kHeads;
  EXPECT_EQ(MapColumnsOf(config, outputs), 4);
  for (const int64_t layer : {0, 4}) {
    outputs.attention_map->layer = layer;
    EXPECT_TRUE(absl::IsOutOfRange(CheckOutputs(config, outputs)));
    EXPECT_THAT(MessageOf(config, outputs), HasSubstr("must be 1 to 3"));
  }
  outputs.attention_map->layer = 1;
  config.class_token = false;
  EXPECT_THAT(MessageOf(config, outputs), HasSubstr("the model has no class token"));
}

TEST(Outputs, PoolingNeedsItsNormAndItsClassToken) {
  EncoderConfig config = Config();
  config.class_token = false;
  EXPECT_TRUE(CheckOutputs(config, {.states = {3}, .pooling = Pooling::kMean}).ok());
  EXPECT_THAT(MessageOf(config, {.states = {3}, .pooling = Pooling::kClass}),
              HasSubstr("no class token"));
  config.norm_eps = 0;
  EXPECT_THAT(MessageOf(config, {.states = {3}, .pooling = Pooling::kMean}),
              HasSubstr("no norm behind pooling"));
}

}  // namespace
}  // namespace hilbert_ring
