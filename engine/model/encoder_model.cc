#include "engine/model/encoder_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

// Of wrong weights that one message names.
constexpr size_t kMaxNamed = 10;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

absl::StatusOr<EncoderConfig> LoadConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  auto config = ParseEncoderConfig(text);
  if (config.ok()) return config;
  return absl::Status(config.status().code(), absl::StrCat(path, ": ", config.status().message()));
}

}  // namespace

absl::Status CheckWeights(const EncoderConfig& config, const SafetensorsFile& file) {
  std::vector<std::string> wrong;
  std::set<std::string> known;
  for (const WeightShape& weight : WeightShapes(config)) {
    known.insert(weight.name);
    const SafetensorsEntry* entry = file.Find(weight.name);
    if (entry == nullptr) {
      wrong.push_back(absl::StrCat(weight.name, " is missing"));
    } else if (entry->shape != weight.shape) {
      wrong.push_back(absl::StrCat(weight.name, " is ", FormatTensorShape(entry->shape),
                                   ", must be ", FormatTensorShape(weight.shape)));
    }
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!known.contains(entry.name)) {
      wrong.push_back(absl::StrCat(entry.name, " is no weight of this encoder"));
    }
  }
  if (wrong.empty()) return absl::OkStatus();
  const size_t named = std::min(wrong.size(), kMaxNamed);
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": ", absl::StrJoin(wrong.begin(), wrong.begin() + named, "; "),
      named < wrong.size() ? absl::StrCat("; and ", wrong.size() - named, " more") : ""));
}

class WeightLoader {
 public:
  WeightLoader(const SafetensorsFile& file, EncoderModel& model) : file_(file), model_(model) {}

  absl::Status Load() {
    const EncoderConfig& config = model_.config_;
    EncoderWeights& weights = model_.weights_;
    const int64_t width = config.embed_dim;
    if (config.input_dim > 0) {
      ASSIGN_OR_RETURN(weights.projection, Matrix("patch_embed.proj", width, config.input_dim));
    }
    if (config.class_token) {
      ASSIGN_OR_RETURN(weights.class_token, Floats("cls_token"));
    }
    for (int64_t i = 0; i < config.layers; ++i) {
      ASSIGN_OR_RETURN(auto layer, Layer(absl::StrCat("encoder.layers.", i, ".")));
      weights.layers.push_back(std::move(layer));
    }
    if (config.output_norm) {
      ASSIGN_OR_RETURN(weights.output_norm, Norm("encoder.layer_norm", config.layer_norm_eps));
    }
    if (config.norm_eps > 0) {
      ASSIGN_OR_RETURN(weights.norm, Norm("norm", config.norm_eps));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<EncoderLayer> Layer(const std::string& name) {
    const int64_t width = model_.config_.embed_dim, ffn = model_.config_.ffn_dim;
    const double epsilon = model_.config_.layer_norm_eps;
    const std::string attention = name + "self_attn.";
    ASSIGN_OR_RETURN(auto attention_norm, Norm(name + "self_attn_layer_norm", epsilon));
    ASSIGN_OR_RETURN(auto q, Matrix(attention + "q_proj", width, width));
    ASSIGN_OR_RETURN(auto k, Matrix(attention + "k_proj", width, width));
    ASSIGN_OR_RETURN(auto v, Matrix(attention + "v_proj", width, width));
    ASSIGN_OR_RETURN(auto inner_attention_norm, Norm(attention + "inner_attn_ln", epsilon));
    ASSIGN_OR_RETURN(auto out, Matrix(attention + "out_proj", width, width));
    ASSIGN_OR_RETURN(auto ffn_norm, Norm(name + "final_layer_norm", epsilon));
    ASSIGN_OR_RETURN(auto fc1, Matrix(name + "ffn.fc1", ffn, width));
    ASSIGN_OR_RETURN(auto inner_ffn_norm, Norm(name + "ffn.ffn_layernorm", epsilon));
    ASSIGN_OR_RETURN(auto fc2, Matrix(name + "ffn.fc2", width, ffn));
    return EncoderLayer{.attention_norm = std::move(attention_norm),
                        .q = std::move(q),
                        .k = std::move(k),
                        .v = std::move(v),
                        .inner_attention_norm = std::move(inner_attention_norm),
                        .out = std::move(out),
                        .ffn_norm = std::move(ffn_norm),
                        .fc1 = std::move(fc1),
                        .inner_ffn_norm = std::move(inner_ffn_norm),
                        .fc2 = std::move(fc2)};
  }

  // Of weights that CheckWeights has found.
  absl::StatusOr<std::vector<float>> Floats(const std::string& name) {
    const SafetensorsEntry& entry = *file_.Find(name);
    std::vector<float> floats(static_cast<size_t>(entry.elements()));
    RETURN_IF_ERROR(file_.Widen(entry, floats));
    return floats;
  }

  absl::StatusOr<LayerNorm> Norm(const std::string& name, double epsilon) {
    ASSIGN_OR_RETURN(auto weight, Floats(name + ".weight"));
    ASSIGN_OR_RETURN(auto bias, Floats(name + ".bias"));
    model_.bytes_ += static_cast<int64_t>(2 * weight.size() * sizeof(float));
    return LayerNorm(std::move(weight), std::move(bias), epsilon);
  }

  absl::StatusOr<PackedMatrix> Matrix(const std::string& name, int64_t out, int64_t in) {
    ASSIGN_OR_RETURN(const auto weight, Floats(name + ".weight"));
    ASSIGN_OR_RETURN(const auto bias, Floats(name + ".bias"));
    ASSIGN_OR_RETURN(
        auto matrix,
        PackedMatrix::Make({.out = out, .in = in, .operand = model_.operand_}, weight, bias));
    model_.bytes_ += matrix.bytes();
    return matrix;
  }

  const SafetensorsFile& file_;
  EncoderModel& model_;
};

absl::StatusOr<std::shared_ptr<const EncoderModel>> EncoderModel::Load(
    const std::string& folder, const EncoderModelOptions& options) {
  if (options.compute == DataType::kFloat16) {
    return absl::InvalidArgumentError("compute is float16, must be float32 or bfloat16");
  }
  std::shared_ptr<EncoderModel> model(new EncoderModel);
  ASSIGN_OR_RETURN(model->config_, LoadConfig(absl::StrCat(folder, "/", kConfigFile)));
  ASSIGN_OR_RETURN(const SafetensorsFile file,
                   SafetensorsFile::Open(absl::StrCat(folder, "/", kWeightsFile)));
  RETURN_IF_ERROR(CheckWeights(model->config_, file));
  model->compute_ = options.compute;
  model->operand_ = OperandOf(options.compute);
  if (options.compute == DataType::kBFloat16 && options.rounded_products) {
    model->operand_ = Operand::kRoundedFloat32;
  }
  auto loaded = WeightLoader(file, *model).Load();
  if (!loaded.ok()) {
    return absl::Status(loaded.code(), absl::StrCat(file.path(), ": ", loaded.message()));
  }
  return model;
}

}  // namespace hilbert_ring
