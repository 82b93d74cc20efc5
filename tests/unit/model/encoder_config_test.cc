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

TEST(EncoderConfig, ErrorsNameFieldValueAndLimit) {
  struct {
    const char *from, *to, *words;
  } const cases[] = {
      {"\"heads\": 16", "\"heads\": 5", "heads is 5, must divide embed_dim 768"},
      {"\"heads\": 16", "\"heads\": 0", "heads is 0, must be at least 1"},
      {"\"heads\": 16", "\"heads\": 128", "head_dim is 6"},
      {"\"layers\": 12", "\"layers\": 1025", "layers is 1025, must be at most 1024"},
      {"\"layers\": 12", "\"layers\": 0", "layers is 0, must be at least 1"},
      {"\"layers\": 12", "\"layers\": 12.5", "layers is 12.5"},
      {"3072", "65537", "ffn_dim is 65537, must be at most 65536"},
      {"1536", "-1", "input_dim is -1, must be at least 0"},
      {"\"tile_size\": 256", "\"tile_size\": 0", "position.tile_size is 0, must be at least 1"},
      {"\"grid\": 1000", "\"grid\": 20000000", "position.grid is 20000000, must be at most"},
      {"1e-5", "0", "layer_norm_eps is 0, must be at least 1.17549e-38 and below 1"},
      {"1e-5", "1e-50", "layer_norm_eps is 1e-50"},  // as float32 it is 0
      {"1e-6", "-1e-6", "norm_eps is -1e-06"},
      {"[1, 2]", "[1]", "segments has 2 entries, but dilations has 1"},
      {"[1, 2]", "[1, 0]", "dilations[1] is 0"},
      {"longnet_encoder", "vit", "architecture is \"vit\""},
      {"\"layers\"", "\"layer\"", "unknown field \"layer\"; the nearest known one is layers"},
      {"\"tile_size\"", "\"tilesize\"", "unknown field position.\"tilesize\""},
      {"sincos_2d", "learned", "position.kind"},
      {"\"class_token\": true", "\"class_token\": 1", "class_token is 1, must be true or false"},
      {"\"ffn_dim\": 3072, ", "", "ffn_dim is required"}};
  for (const auto& [from, to, words] : cases) {
    EXPECT_THAT(MessageOf(With(from, to)), HasSubstr(words));
  }
  EXPECT_THAT(MessageOf("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(MessageOf("{"), HasSubstr("malformed JSON"));
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
