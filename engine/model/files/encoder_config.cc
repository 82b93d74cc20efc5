#include "engine/model/files/encoder_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/field_error.h"
#include "engine/spec/nearest_name.h"
#include "engine/spec/object_reader.h"
#include "engine/spec/watched_json.h"

namespace hilbert_ring {
namespace {

using Json = nlohmann::json;

constexpr char kWhat[] = "the encoder's config";

constexpr int64_t kMaxWidth = int64_t{1} << 16;  // input_dim, embed_dim, ffn_dim
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxGrid = int64_t{1} << 24;

enum class Architecture { kLongNetEncoder };
enum class PositionKind { kSinCos2d };

constexpr std::array<EnumName<Architecture>, 1> kArchitectures{
    {{"longnet_encoder", Architecture::kLongNetEncoder}}};
constexpr std::array<EnumName<PositionKind>, 1> kPositionKinds{
    {{"sincos_2d", PositionKind::kSinCos2d}}};

std::span<const std::string> ConfigFields() {
  static const std::vector<std::string> fields = {
      "architecture", "input_dim",   "embed_dim", "heads",          "ffn_dim",
      "layers",       "segments",    "dilations", "layer_norm_eps", "norm_eps",
      "class_token",  "output_norm", "position"};
  return fields;
}

std::span<const std::string> PositionFields() {
  static const std::vector<std::string> fields = {"kind", "tile_size", "grid"};
  return fields;
}

absl::Status CheckFields(const Json& object, const std::string& prefix,
                         std::span<const std::string> known) {
  for (const auto& [field, value] : object.items()) {
    if (std::ranges::find(known, field) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("unknown field ", prefix, Quoted(field), NearestNameHint(field, known)));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const char* field, int64_t value, int64_t least, int64_t most) {
  if (value < least) {
    return WithField(absl::InvalidArgumentError(
                         absl::StrCat(field, " is ", value, ", must be at least ", least)),
                     field, least);
  }
  if (value > most) {
    return WithField(
        absl::OutOfRangeError(absl::StrCat(field, " is ", value, ", must be at most ", most)),
        field, most);
  }
  return absl::OkStatus();
}

absl::Status CheckEpsilon(const char* field, double value, bool may_be_zero) {
  // Norms take it as float32; a smaller value would be subnormal or 0.
  constexpr double kLeast = std::numeric_limits<float>::min();
  if (value < 1 && (value >= kLeast || (may_be_zero && value == 0))) {
    return absl::OkStatus();
  }
  return WithField(absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be ",
                                                           may_be_zero ? "0, or " : "", "at least ",
                                                           kLeast, " and below 1")),
                   field);
}

absl::Status ReadPosition(const Json& object, EncoderConfig& config) {
  if (!object.is_object()) return WrongType("position", "an object or null", object);
  RETURN_IF_ERROR(CheckFields(object, "position.", PositionFields()));
  GridPositions& position = config.position.emplace();
  ObjectReader reader(object, "position");
  reader.Require({"kind", "tile_size", "grid"});
  PositionKind kind = PositionKind::kSinCos2d;
  reader.Choice("kind", kPositionKinds, kind);
  reader.Integer("tile_size", position.tile_size);
  reader.Integer("grid", position.grid);
  return reader.status();
}

absl::Status ValidateConfig(const EncoderConfig& config) {
  RETURN_IF_ERROR(CheckRange("input_dim", config.input_dim, 0, kMaxWidth));
  RETURN_IF_ERROR(CheckRange("embed_dim", config.embed_dim, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckRange("ffn_dim", config.ffn_dim, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckRange("layers", config.layers, 1, kMaxLayers));
  RETURN_IF_ERROR(CheckRange("heads", config.heads, 1, config.embed_dim));
  if (config.embed_dim % config.heads != 0) {
    return WithField(absl::InvalidArgumentError(absl::StrCat(
                         "heads is ", config.heads, ", must divide embed_dim ", config.embed_dim)),
                     "heads");
  }
  RETURN_IF_ERROR(CheckEpsilon("layer_norm_eps", config.layer_norm_eps, false));
  RETURN_IF_ERROR(CheckEpsilon("norm_eps", config.norm_eps, true));
  if (config.position) {
    RETURN_IF_ERROR(CheckRange("position.tile_size", config.position->tile_size, 1, kMaxGrid));
    RETURN_IF_ERROR(CheckRange("position.grid", config.position->grid, 1, kMaxGrid));
    if (config.embed_dim % 4 != 0) {
      return WithField(
          absl::InvalidArgumentError(absl::StrCat("embed_dim is ", config.embed_dim,
                                                  ", must be divisible by 4 for 2-D positions")),
          "embed_dim");
    }
  }
  // A job's limits apply to head_dim and branches.
  return AttentionOf(config, DataType::kFloat32, {1}).status();
}

}  // namespace

absl::StatusOr<EncoderConfig> ParseEncoderConfig(std::string_view json) {
  ASSIGN_OR_RETURN(const Json object, ParseWatchedJson(json, kWhat));
  if (!object.is_object()) return WrongType(kWhat, "an object", object);
  RETURN_IF_ERROR(CheckFields(object, "", ConfigFields()));
  EncoderConfig config;
  ObjectReader reader(object, "");
  reader.Require({"architecture", "embed_dim", "heads", "ffn_dim", "layers", "segments",
                  "dilations", "layer_norm_eps", "class_token", "output_norm"});
  Architecture architecture = Architecture::kLongNetEncoder;
  reader.Choice("architecture", kArchitectures, architecture);
  reader.Integer("input_dim", config.input_dim);
  reader.Integer("embed_dim", config.embed_dim);
  reader.Integer("heads", config.heads);
  reader.Integer("ffn_dim", config.ffn_dim);
  reader.Integer("layers", config.layers);
  reader.Boolean("class_token", config.class_token);
  reader.Boolean("output_norm", config.output_norm);
  std::optional<double> layer_norm_eps, norm_eps;
  reader.Number("layer_norm_eps", layer_norm_eps);
  reader.Number("norm_eps", norm_eps);
  reader.Branches(config.branches);
  RETURN_IF_ERROR(reader.status());
  config.layer_norm_eps = *layer_norm_eps;
  config.norm_eps = norm_eps.value_or(0);
  if (const Json* position = reader.Find("position")) {
    RETURN_IF_ERROR(ReadPosition(*position, config));
  }
  RETURN_IF_ERROR(ValidateConfig(config));
  return config;
}

std::vector<WeightShape> WeightShapes(const EncoderConfig& config) {
  const int64_t width = config.embed_dim;
  std::vector<WeightShape> shapes;
  const auto put = [&](const std::string& name, int64_t out, int64_t in) {
    shapes.push_back({name + ".weight", {out, in}});
    shapes.push_back({name + ".bias", {out}});
  };
  const auto put_norm = [&](const std::string& name, int64_t dim) {
    shapes.push_back({name + ".weight", {dim}});
    shapes.push_back({name + ".bias", {dim}});
  };
  if (config.input_dim > 0) put("patch_embed.proj", width, config.input_dim);
  if (config.class_token) shapes.push_back({"cls_token", {1, 1, width}});
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = absl::StrCat("encoder.layers.", i, ".");
    for (const char* projection : {"q", "k", "v", "out"}) {
      put(absl::StrCat(layer, "self_attn.", projection, "_proj"), width, width);
    }
    put_norm(layer + "self_attn.inner_attn_ln", width);
    put_norm(layer + "self_attn_layer_norm", width);
    put_norm(layer + "final_layer_norm", width);
    put(layer + "ffn.fc1", config.ffn_dim, width);
    put_norm(layer + "ffn.ffn_layernorm", config.ffn_dim);
    put(layer + "ffn.fc2", width, config.ffn_dim);
  }
  if (config.output_norm) put_norm("encoder.layer_norm", width);
  if (config.norm_eps > 0) put_norm("norm", width);
  return shapes;
}

int64_t TokensOf(const EncoderConfig& config, int64_t tiles) {
  return tiles + (config.class_token ? 1 : 0);
}

absl::StatusOr<JobSpec> AttentionOf(const EncoderConfig& config, DataType dtype,
                                    const std::vector<int64_t>& sequence_tiles) {
  JobSpec spec{.heads = config.heads,
               .kv_heads = config.heads,
               .head_dim = config.head_dim(),
               .value_dim = config.head_dim(),
               .dtype = dtype,
               .branches = config.branches,
               .mixing = Mixing::kLse,
               .tail = Tail::kZero,
               .average_groups = false};
  const int64_t most = SpecLimits().max_tokens;
  for (const int64_t tiles : sequence_tiles) {
    RETURN_IF_ERROR(CheckRange("sequence_lengths", tiles, 1, most));
    spec.sequence_lengths.push_back(TokensOf(config, tiles));
    spec.tokens += spec.sequence_lengths.back();
    RETURN_IF_ERROR(CheckRange("tokens", spec.tokens, 1, most));
  }
  RETURN_IF_ERROR(Validate(spec));
  return spec;
}

}  // namespace hilbert_ring
