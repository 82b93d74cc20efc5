// A model's weights in the memory of a device, once for all jobs on it. Matrices are in the type
// that products take their numbers in, rows as the file has them; all others are float32. Those of
// q, k and v lie one behind the other, so that one product gives the three.
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

// Memory of the device that the weights take.
int64_t DeviceWeightBytes(const EncoderConfig& config, DataType compute);

// Immutable; any number of threads, and all devices of the GPU, may use it.
class DeviceWeights {
 public:
  // The device outlives it. Errors of EncoderFolder::Floats, and of the device's memory and copies,
  // which name the weight.
  static absl::StatusOr<std::unique_ptr<DeviceWeights>> Load(const EncoderFolder& folder,
                                                             DataType compute, Device& device);

  const DeviceMatrix& projection() const { return projection_; }  // where input_dim is given
  const std::vector<DeviceLayer>& layers() const { return layers_; }
  const DeviceNorm& output_norm() const { return output_norm_; }  // where the model has one
  int64_t bytes() const { return memory_->bytes(); }

 private:
  DeviceWeights() = default;
  absl::Status CopyIn(const EncoderFolder& folder, DataType compute, Device& device);
  void FindParts(const EncoderConfig& config);
  const float* Numbers(const std::string& name) const;
  DeviceNorm Norm(const std::string& name, double epsilon) const;
  DeviceMatrix Matrix(const std::string& name, int64_t out, int64_t in) const;

  std::unique_ptr<Buffer> memory_;
  std::map<std::string, int64_t> places_;  // of weights in it, in bytes
  DeviceMatrix projection_;
  std::vector<DeviceLayer> layers_;
  DeviceNorm output_norm_;
};

}  // namespace hilbert_ring
