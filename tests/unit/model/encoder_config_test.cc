#include "engine/model/files/encoder_config.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"architecture": "longnet_encoder", "input_dim": 1536,
  "embed_dim": 768, "heads": 16, "ffn_dim": 3072, "layers": 12, "segments": [1024, 5792],
  "dilations": [1, 2], "layer_norm_eps": 1e-5, "norm_eps": 1e-6, "class_token": true,
  "output_norm": true, "position": {"kind": "sincos_2d", "tile_size": 256, "grid": 1000}})";

std::string With(const char* from, const char* to) {
  std::string text = absl::StrReplaceAll(kConfig, {{from, to}});
  EXPECT_NE(text, kConfig) << from;
  return text;
}

std::string MessageOf(const std::string& json) {
  const auto config = ParseEncoderConfig(json);
  EXPECT_FALSE(config.ok()) << json;
  return std::string(config.status().message());
}

TEST(EncoderConfig, EveryField) {
  const auto config = ParseEncoderConfig(kConfig);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->input_dim, 1536);
  EXPECT_EQ(config->tile_dim(), 1536);
  EXPECT_EQ(config->embed_dim, 768);
  EXPECT_EQ(config->head_dim(), 48);
  EXPECT_EQ(config->ffn_dim, 3072);
  EXPECT_EQ(config->layers, 12);
  ASSERT_EQ(config->branches.size(), 2u);
  EXPECT_EQ(config->branches[1], (Branch{.segment = 5792, .dilation = 2}));
  EXPECT_EQ(config->layer_norm_eps, 1e-5);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_TRUE(config->class_token);
  EXPECT_TRUE(config->output_norm);
  EXPECT_EQ(config->position, (GridPositions{.tile_size = 256, .grid = 1000}));
}

TEST(EncoderConfig, ABareEncoderTakesRowsOfItsOwnWidth) {
  const auto config = ParseEncoderConfig(
      R"({"architecture": "longnet_encoder", "input_dim": 0, "embed_dim": 128, "heads": 4,
          "ffn_dim": 256, "layers": 2, "segments": [64], "dilations": [1], "layer_norm_eps": 1e-5,
          "class_token": false, "output_norm": false, "position": null})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tile_dim(), 128);
  EXPECT_EQ(TokensOf(*config, 40), 40);
  EXPECT_FALSE(config->position.has_value());
  for (const WeightShape& weight : WeightShapes(*config)) {
    EXPECT_TRUE(weight.name.starts_with("encoder.layers.")) << weight.name;
  }
}

TEST(EncoderConfig, ErrorsNameFieldValueAndLimit) {
  EXPECT_EQ(MessageOf(With("\"heads\": 16", "\"heads\": 5")),
            "heads is 5, must divide embed_dim 768");
  EXPECT_EQ(MessageOf(With("\"heads\": 16", "\"heads\": 0")), "heads is 0, must be at least 1");
  EXPECT_EQ(MessageOf(With("\"layers\": 12", "\"layers\": 1025")),
            "layers is 1025, must be at most 1024");
  EXPECT_EQ(MessageOf(With("\"layers\": 12", "\"layers\": 0")), "layers is 0, must be at least 1");
  EXPECT_EQ(MessageOf(With("3072", "65537")), "ffn_dim is 65537, must be at most 65536");
  EXPECT_EQ(MessageOf(With("1536", "-1")), "input_dim is -1, must be at least 0");
  EXPECT_EQ(MessageOf(With("\"tile_size\": 256", "\"tile_size\": 0")),
            "position.tile_size is 0, must be at least 1");
  EXPECT_EQ(MessageOf(With("\"grid\": 1000", "\"grid\": 20000000")),
            "position.grid is 20000000, must be at most 16777216");
  EXPECT_THAT(MessageOf(With("1e-5", "0")),
              HasSubstr("layer_norm_eps is 0, must be at least 1.17549e-38 and below 1"));
  EXPECT_THAT(MessageOf(With("1e-5", "1e-50")), HasSubstr("layer_norm_eps is 1e-50"))
      << "as float32 it is 0";
  EXPECT_THAT(MessageOf(With("1e-6", "-1e-6")), HasSubstr("norm_eps is -1e-06"));
  EXPECT_THAT(MessageOf(With("[1, 2]", "[1]")),
              HasSubstr("segments has 2 entries, dilations has 1"));
  EXPECT_THAT(MessageOf(With("[1, 2]", "[1, 0]")), HasSubstr("dilations[1] is 0"));
  // A head of 768 / 128 = 6 elements.
  EXPECT_THAT(MessageOf(With("\"heads\": 16", "\"heads\": 128")), HasSubstr("head_dim is 6"));
}

TEST(EncoderConfig, TypesAndNamesAreTold) {
  EXPECT_THAT(MessageOf("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(MessageOf("{"), HasSubstr("malformed JSON"));
  EXPECT_THAT(MessageOf(With("longnet_encoder", "vit")), HasSubstr("architecture is \"vit\""));
  EXPECT_THAT(MessageOf(With("\"layers\"", "\"layer\"")),
              HasSubstr("unknown field \"layer\"; the nearest known one is layers"));
  EXPECT_THAT(MessageOf(With("\"tile_size\"", "\"tilesize\"")),
              HasSubstr("unknown field position.\"tilesize\""));
  EXPECT_THAT(MessageOf(With("sincos_2d", "learned")), HasSubstr("position.kind"));
  EXPECT_THAT(MessageOf(With("\"class_token\": true", "\"class_token\": 1")),
              HasSubstr("class_token is 1, but must be true or false"));
  EXPECT_THAT(MessageOf(With("\"ffn_dim\": 3072, ", "")), HasSubstr("ffn_dim is required"));
  EXPECT_THAT(MessageOf(With("\"layers\": 12", "\"layers\": 12.5")), HasSubstr("layers is 12.5"));
}

TEST(EncoderConfig, WeightsOfThePublishedSize) {
  const auto config = ParseEncoderConfig(kConfig);
  ASSERT_TRUE(config.ok());
  int64_t numbers = 0;
  for (const WeightShape& weight : WeightShapes(*config)) {
    int64_t of_weight = 1;
    for (const int64_t axis : weight.shape) of_weight *= axis;
    numbers += of_weight;
  }
  // 12 layers of 4 x 768^2 + 2 x 768 x 3072 and their norms and biases, and what is around them.
  EXPECT_EQ(numbers, 12 * (4 * 768 * 769 + 3072 * 769 + 768 * 3073 + 6 * 768 + 2 * 3072) +
                         768 * 1537 + 768 + 4 * 768);
}

TEST(EncoderConfig, AttentionOfSlidesWithTheirClassTokens) {
  const auto config = ParseEncoderConfig(kConfig);
  ASSERT_TRUE(config.ok());
  const auto spec = AttentionOf(*config, DataType::kBFloat16, {40, 1, 133});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->tokens, 177);
  EXPECT_EQ(spec->sequence_lengths, (std::vector<int64_t>{41, 2, 134}));
  EXPECT_EQ(spec->mixing, Mixing::kLse);
  EXPECT_EQ(spec->tail, Tail::kZero);
  EXPECT_EQ(spec->dtype, DataType::kBFloat16);
  EXPECT_FALSE(AttentionOf(*config, DataType::kFloat32, {}).ok());
  const auto empty = AttentionOf(*config, DataType::kFloat32, {40, 0});
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("is 0, must be at least 1"));
  const int64_t most = int64_t{1} << 40;
  EXPECT_TRUE(absl::IsOutOfRange(AttentionOf(*config, DataType::kFloat32, {most, most}).status()));
}

}  // namespace
}  // namespace hilbert_ring
