// An encoder as it is computed with: its config and its weights, packed for products.
//
//   ASSIGN_OR_RETURN(const auto folder, EncoderFolder::Open("models/slide_encoder", digests));
//   ASSIGN_OR_RETURN(const auto model,
//                    EncoderModel::Load(folder, {.compute = DataType::kBFloat16}));
//   model->digest();      // all weights are of this version of the folder
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
  std::optional<PackedMatrix> projection;  // where input_dim is given
  std::vector<float> class_token;          // [embed_dim], where there is one
  std::vector<EncoderLayer> layers;
  std::optional<LayerNorm> output_norm;
  std::optional<LayerNorm> norm;  // behind pooling
};

struct EncoderModelOptions {
  DataType compute = DataType::kFloat32;  // of products and attention; or bfloat16
  // Of bfloat16: products of float32 with its numbers, also where the processor has its own.
  bool rounded_products = false;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();  // of the weights
  // A GPU that the weights are for: they lie in its memory, and it outlives the model. Null: they
  // lie in the host's.
  Device* device = nullptr;
  // Of packed matrices in the host's memory, for a key on which their bytes depend: letters and
  // digits. Empty: memory of this process alone.
  std::function<absl::StatusOr<std::unique_ptr<WeightMemory>>(const std::string& key,
                                                              int64_t bytes)>
      memory;
};

// The type that products of `compute` take their numbers in: on a GPU, or, where it is null, on
// this machine's processor, of which not every one has products of bfloat16.
DataType ProductsOn(const Device* gpu, DataType compute);

// Memory that the weights will take, as EncoderModel::bytes() says it afterwards. INVALID_ARGUMENT:
// a compute type other than float32 and bfloat16; INTERNAL where oneDNN fails.
absl::StatusOr<int64_t> PackedBytes(const EncoderConfig& config,
                                    const EncoderModelOptions& options);

// Immutable; any number of threads may use it.
class EncoderModel {
 public:
  // While it is loaded, the greatest of its matrices takes up to 8 bytes a number beside bytes().
  // Where another process has packed the weights already they are not read again. Errors of
  // PackedBytes, EncoderFolder::Floats, CheckUnchanged and options.memory; RESOURCE_EXHAUSTED,
  // before anything is allocated: the weights take more than max_bytes.
  static absl::StatusOr<std::shared_ptr<const EncoderModel>> Load(
      const EncoderFolder& folder, const EncoderModelOptions& options);

  const EncoderConfig& config() const { return config_; }
  const std::string& digest() const { return digest_; }  // EncoderFolder::digest()
  // Of a model on a GPU: class token, output norm and norm alone.
  const EncoderWeights& weights() const { return weights_; }
  // Null where the weights lie in the host's memory.
  const DeviceWeights* device_weights() const { return device_weights_.get(); }
  DataType compute() const { return compute_; }
  Operand operand() const { return operand_; }

  // Memory that the weights take, shared or not.
  int64_t bytes() const { return bytes_; }
  bool shared() const { return memory_ != nullptr && memory_->shared(); }

 private:
  friend class WeightLoader;
  EncoderModel() = default;

  EncoderConfig config_;
  std::string digest_;
  std::unique_ptr<WeightMemory> memory_;  // before the matrices that lie in it
  EncoderWeights weights_;
  std::unique_ptr<DeviceWeights> device_weights_;
  DataType compute_ = DataType::kFloat32;
  Operand operand_ = Operand::kFloat32;
  int64_t bytes_ = 0;
};

}  // namespace hilbert_ring
