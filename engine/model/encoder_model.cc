#include "engine/model/encoder_model.h"

#include <map>
#include <new>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring {
namespace {

absl::StatusOr<Operand> OperandFor(const EncoderModelOptions& options) {
  if (options.compute == DataType::kFloat16) {
    return absl::InvalidArgumentError("compute is float16, must be float32 or bfloat16");
  }
  if (options.device != nullptr) {
    return options.compute == DataType::kFloat32 ? Operand::kFloat32 : Operand::kBFloat16;
  }
  if (options.compute == DataType::kBFloat16 && options.rounded_products) {
    return Operand::kRoundedFloat32;
  }
  return OperandOf(options.compute);
}

constexpr int64_t kPageBytes = 4096;  // places of matrices begin at pages

int64_t PlaceBytes(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Bytes of each packed matrix, by shape [out, in].
absl::StatusOr<std::map<std::vector<int64_t>, int64_t>> MatrixBytes(const EncoderConfig& config,
                                                                    Operand operand) {
  std::map<std::vector<int64_t>, int64_t> bytes;
  for (const WeightShape& weight : WeightShapes(config)) {
    if (weight.shape.size() != 2 || bytes.contains(weight.shape)) continue;
    ASSIGN_OR_RETURN(
        bytes[weight.shape],
        PackedMatrixBytes({.out = weight.shape[0], .in = weight.shape[1], .operand = operand}));
  }
  return bytes;
}

std::string KeyOf(const EncoderFolder& folder, Operand operand) {
  const std::string all =
      absl::StrCat(folder.digest(), " ", static_cast<int>(operand), " ", PackingOfThisMachine());
  return HexOf(Sha256(std::as_bytes(std::span(all)))).substr(0, 40);
}

}  // namespace

DataType ProductsOn(const Device* gpu, DataType compute) {
  return gpu != nullptr ? compute : StorageOf(OperandOf(compute));
}

absl::StatusOr<int64_t> PackedBytes(const EncoderConfig& config,
                                    const EncoderModelOptions& options) {
  ASSIGN_OR_RETURN(const Operand operand, OperandFor(options));
  int64_t bytes = 0;
  if (options.device != nullptr) {
    bytes = DeviceWeightBytes(config, options.compute);
    if (config.class_token) bytes += config.embed_dim * static_cast<int64_t>(sizeof(float));
    const int64_t norms = (config.output_norm ? 2 : 0) + (config.norm_eps > 0 ? 2 : 0);
    return bytes + norms * config.embed_dim * static_cast<int64_t>(sizeof(float));
  }
  ASSIGN_OR_RETURN(const auto matrix_bytes, MatrixBytes(config, operand));
  for (const WeightShape& weight : WeightShapes(config)) {
    bytes += weight.shape.size() == 2 ? matrix_bytes.at(weight.shape)
                                      : weight.shape.back() * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

class WeightLoader {
 public:
  WeightLoader(const EncoderFolder& folder, EncoderModel& model) : folder_(folder), model_(model) {}

  absl::Status Load(const EncoderModelOptions& options) {
    const EncoderConfig& config = model_.config_;
    if (options.device != nullptr) {
      ASSIGN_OR_RETURN(model_.device_weights_,
                       DeviceWeights::Load(folder_, options.compute, *options.device));
      model_.bytes_ += model_.device_weights_->bytes();
      RETURN_IF_ERROR(LoadEnds());
      return folder_.CheckUnchanged();
    }
    ASSIGN_OR_RETURN(matrix_bytes_, MatrixBytes(config, model_.operand_));
    int64_t bytes = 0;
    for (const WeightShape& weight : WeightShapes(config)) {
      if (weight.shape.size() == 2) bytes += PlaceBytes(matrix_bytes_.at(weight.shape));
    }
    ASSIGN_OR_RETURN(model_.memory_, options.memory
                                         ? options.memory(KeyOf(folder_, model_.operand_), bytes)
                                         : WeightMemory::Private(bytes));
    packed_ = model_.memory_->filled();
    RETURN_IF_ERROR(LoadParts());
    // Others read the memory as the version that its key names.
    RETURN_IF_ERROR(folder_.CheckUnchanged());
    return packed_ ? absl::OkStatus() : model_.memory_->Seal();
  }

 private:
  absl::Status LoadParts() {
    const EncoderConfig& config = model_.config_;
    EncoderWeights& weights = model_.weights_;
    const int64_t width = config.embed_dim;
    if (config.input_dim > 0) {
      ASSIGN_OR_RETURN(weights.projection, Matrix("patch_embed.proj", width, config.input_dim));
    }
    for (int64_t i = 0; i < config.layers; ++i) {
      ASSIGN_OR_RETURN(auto layer, Layer(absl::StrCat("encoder.layers.", i, ".")));
      weights.layers.push_back(std::move(layer));
    }
    return LoadEnds();
  }

  // Loads the weights that stay on the host with any device.
  absl::Status LoadEnds() {
    const EncoderConfig& config = model_.config_;
    EncoderWeights& weights = model_.weights_;
    if (config.class_token) {
      ASSIGN_OR_RETURN(weights.class_token, folder_.Floats("cls_token"));
      model_.bytes_ += static_cast<int64_t>(weights.class_token.size() * sizeof(float));
    }
    if (config.output_norm) {
      ASSIGN_OR_RETURN(weights.output_norm, Norm("encoder.layer_norm", config.layer_norm_eps));
    }
    if (config.norm_eps > 0) {
      ASSIGN_OR_RETURN(weights.norm, Norm("norm", config.norm_eps));
    }
    return absl::OkStatus();
  }

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

  absl::StatusOr<LayerNorm> Norm(const std::string& name, double epsilon) {
    ASSIGN_OR_RETURN(auto weight, folder_.Floats(name + ".weight"));
    ASSIGN_OR_RETURN(auto bias, folder_.Floats(name + ".bias"));
    model_.bytes_ += static_cast<int64_t>(2 * weight.size() * sizeof(float));
    return LayerNorm(std::move(weight), std::move(bias), epsilon);
  }

  absl::StatusOr<PackedMatrix> Matrix(const std::string& name, int64_t out, int64_t in) {
    std::vector<float> weight;
    if (!packed_) {
      ASSIGN_OR_RETURN(weight, folder_.Floats(name + ".weight"));
    }
    ASSIGN_OR_RETURN(const auto bias, folder_.Floats(name + ".bias"));
    const int64_t bytes = matrix_bytes_.at({out, in});
    const std::span<std::byte> place(model_.memory_->data() + used_, static_cast<size_t>(bytes));
    used_ += PlaceBytes(bytes);
    ASSIGN_OR_RETURN(auto matrix,
                     PackedMatrix::Make(place, {.out = out, .in = in, .operand = model_.operand_},
                                        weight, bias));
    model_.bytes_ += matrix.bytes();
    if (!packed_) model_.memory_->NoteProgress();
    return matrix;
  }

  const EncoderFolder& folder_;
  EncoderModel& model_;
  std::map<std::vector<int64_t>, int64_t> matrix_bytes_;  // by shape
  int64_t used_ = 0;                                      // bytes of the memory
  bool packed_ = false;                                   // by another process
};

absl::StatusOr<std::shared_ptr<const EncoderModel>> EncoderModel::Load(
    const EncoderFolder& folder, const EncoderModelOptions& options) {
  ASSIGN_OR_RETURN(const Operand operand, OperandFor(options));
  ASSIGN_OR_RETURN(const int64_t bytes, PackedBytes(folder.config(), options));
  if (bytes > options.max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(folder.path(), ": the model's weights take ",
                                                     bytes, " bytes of memory, must take at most ",
                                                     options.max_bytes));
  }
  try {
    std::shared_ptr<EncoderModel> model(new EncoderModel);
    model->config_ = folder.config();
    model->digest_ = folder.digest();
    model->compute_ = options.compute;
    model->operand_ = operand;
    RETURN_IF_ERROR(WeightLoader(folder, *model).Load(options));
    return model;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(folder.path(), ": the memory does not suffice for the model's weights"));
  }
}

}  // namespace hilbert_ring
