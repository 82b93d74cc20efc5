// An encoder as it is computed with: its config and its weights, packed for products.
//
//   auto model = EncoderModel::Load("models/slide_encoder", {.compute = DataType::kBFloat16});
//   (*model)->config();
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/encoder_config.h"
#include "engine/model/layer_norm.h"
#include "engine/model/matrix_product.h"
#include "engine/model/safetensors.h"

namespace hilbert_ring {

// Files of a model's folder.
inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kWeightsFile[] = "model.safetensors";

struct EncoderLayer {
  LayerNorm attention_norm;  // self_attn_layer_norm
  PackedMatrix q, k, v;
  LayerNorm inner_attention_norm;  // self_attn.inner_attn_ln
  PackedMatrix out;
  LayerNorm ffn_norm;  // final_layer_norm
  PackedMatrix fc1;
  LayerNorm inner_ffn_norm;  // ffn.ffn_layernorm
  PackedMatrix fc2;
};

struct EncoderWeights {
  std::optional<PackedMatrix> projection;  // where input_dim is given
  std::vector<float> class_token;          // [embed_dim], where there is one
  std::vector<EncoderLayer> layers;
  std::optional<LayerNorm> output_norm;
  std::optional<LayerNorm> norm;  // behind pooling
};

// OK, or INVALID_ARGUMENT: names every weight that is missing or has another shape than the config
// says (the first ten), and those that belong to no part of it.
absl::Status CheckWeights(const EncoderConfig& config, const SafetensorsFile& file);

struct EncoderModelOptions {
  DataType compute = DataType::kFloat32;  // of products and attention; or bfloat16
  // Of bfloat16: products of float32 with its numbers, also where the processor has its own.
  bool rounded_products = false;
};

// Immutable; any number of threads may use it.
class EncoderModel {
 public:
  // Of a folder with config.json and model.safetensors. The message names the file: errors of
  // ParseEncoderConfig, SafetensorsFile::Open and CheckWeights, and RESOURCE_EXHAUSTED without
  // memory. INVALID_ARGUMENT: a compute type other than float32 and bfloat16.
  static absl::StatusOr<std::shared_ptr<const EncoderModel>> Load(
      const std::string& folder, const EncoderModelOptions& options);

  const EncoderConfig& config() const { return config_; }
  const EncoderWeights& weights() const { return weights_; }
  DataType compute() const { return compute_; }
  Operand operand() const { return operand_; }

  // Memory that the weights take.
  int64_t bytes() const { return bytes_; }

 private:
  friend class WeightLoader;
  EncoderModel() = default;

  EncoderConfig config_;
  EncoderWeights weights_;
  DataType compute_ = DataType::kFloat32;
  Operand operand_ = Operand::kFloat32;
  int64_t bytes_ = 0;
};

}  // namespace hilbert_ring
