// An encoder's config and its weights, packed for products.
//
//   ASSIGN_OR_RETURN(const auto folder, EncoderFolder::Open("models/slide_encoder", digests));
//   ASSIGN_OR_RETURN(const auto model,
//                    EncoderModel::Load(folder, {.compute = DataType::kBFloat16}));
//   model->digest();      // the version of the folder that all weights are of
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/model/device_weights.h"
#include "engine/model/files/encoder_config.h"
#include "engine/model/files/encoder_folder.h"
#include "engine/model/files/layer_norm.h"
#include "engine/model/matrix_product.h"
#include "engine/model/weight_memory.h"

namespace hilbert_ring {

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
  std::optional<PackedMatrix> projection;  // if input_dim > 0
  std::vector<float> class_token;          // [embed_dim]; empty if the model has none
  std::vector<EncoderLayer> layers;
  std::optional<LayerNorm> output_norm;
  std::optional<LayerNorm> norm;  // after pooling
};

struct EncoderModelOptions {
  DataType compute = DataType::kFloat32;  // of products and attention: float32 or bfloat16
  // With bfloat16: rounds operands to bfloat16 but multiplies in float32, on any processor.
  bool rounded_products = false;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();  // of the weights
  // A GPU whose memory the weights take; it outlives the model. Null: host memory.
  Device* device = nullptr;
  // Host memory for packed matrices; empty: private. The key is all that their bytes depend on.
  std::function<absl::StatusOr<std::unique_ptr<WeightMemory>>(const std::string& key,
                                                              int64_t bytes)>
      memory;
};

// The operand type of products on a GPU, or if null on this machine's processor.
DataType ProductsOn(const Device* gpu, DataType compute);

// The future EncoderModel::bytes(). Errors: INVALID_ARGUMENT (compute is float16), INTERNAL
// (oneDNN).
absl::StatusOr<int64_t> PackedBytes(const EncoderConfig& config,
                                    const EncoderModelOptions& options);

// Immutable; thread-safe.
class EncoderModel {
 public:
  // Loading takes up to 8 bytes for each number of the largest matrix, beside bytes(). Errors:
  // PackedBytes, EncoderFolder::Floats, CheckUnchanged, options.memory; RESOURCE_EXHAUSTED (more
  // than max_bytes, before any allocation).
  static absl::StatusOr<std::shared_ptr<const EncoderModel>> Load(
      const EncoderFolder& folder, const EncoderModelOptions& options);

  const EncoderConfig& config() const { return config_; }
  const std::string& digest() const { return digest_; }  // EncoderFolder::digest()
  // On a GPU these hold only class token, output norm and norm.
  const EncoderWeights& weights() const { return weights_; }
  const DeviceWeights* device_weights() const { return device_weights_.get(); }
  DataType compute() const { return compute_; }
  Operand operand() const { return operand_; }

  int64_t bytes() const { return bytes_; }
  bool shared() const { return memory_ != nullptr && memory_->shared(); }

 private:
  friend class WeightLoader;
  EncoderModel() = default;

  EncoderConfig config_;
  std::string digest_;
  std::unique_ptr<WeightMemory> memory_;  // declared before the matrices that lie in it
  EncoderWeights weights_;
  std::unique_ptr<DeviceWeights> device_weights_;
  DataType compute_ = DataType::kFloat32;
  Operand operand_ = Operand::kFloat32;
  int64_t bytes_ = 0;
};

}  // namespace hilbert_ring
