// A model's weights in device memory, once for all jobs. Matrices are [out, in] of the products'
// operand type, other weights float32. q, k and v are contiguous, so that one product computes
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/device/row_math.h"
#include "engine/model/files/encoder_folder.h"

namespace hilbert_ring {

struct DeviceMatrix {
  const std::byte* weights = nullptr;  // [out, in]
  const float* bias = nullptr;         // [out]
  int64_t out = 0, in = 0;
};

struct DeviceLayer {
  DeviceNorm attention_norm;
  DeviceMatrix q_k_v;  // [3 embed_dim, embed_dim]
  DeviceNorm inner_attention_norm;
  DeviceMatrix out;
  DeviceNorm ffn_norm;
  DeviceMatrix fc1;
  DeviceNorm inner_ffn_norm;
  DeviceMatrix fc2;
};

int64_t DeviceWeightBytes(const EncoderConfig& config, DataType compute);

// Immutable; any number of threads, and all devices of the GPU, may use it.
class DeviceWeights {
 public:
  // The device outlives the weights. Errors: EncoderFolder::Floats, the device's (naming the
  // weight).
  static absl::StatusOr<std::unique_ptr<DeviceWeights>> Load(const EncoderFolder& folder,
                                                             DataType compute, Device& device);

  const DeviceMatrix& projection() const { return projection_; }  // if input_dim > 0
  const std::vector<DeviceLayer>& layers() const { return layers_; }
  const DeviceNorm& output_norm() const { return output_norm_; }  // if the model has one
  int64_t bytes() const { return memory_->bytes(); }

 private:
  DeviceWeights() = default;
  absl::Status CopyIn(const EncoderFolder& folder, DataType compute, Device& device);
  void FindParts(const EncoderConfig& config);
  const float* Numbers(const std::string& name) const;
  DeviceNorm Norm(const std::string& name, double epsilon) const;
  DeviceMatrix Matrix(const std::string& name, int64_t out, int64_t in) const;

  std::unique_ptr<Buffer> memory_;
  std::map<std::string, int64_t> places_;  // of weights in memory_, in bytes
  DeviceMatrix projection_;
  std::vector<DeviceLayer> layers_;
  DeviceNorm output_norm_;
};

}  // namespace hilbert_ring
