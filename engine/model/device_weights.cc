#include "engine/model/device_weights.h"

#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/numbers.h"

namespace hilbert_ring {
namespace {

// Groups of weights begin at multiples of this: the fastest product algorithms require it.
constexpr int64_t kPlaceBytes = 256;

struct Layout {
  std::map<std::string, int64_t> places;
  int64_t bytes = 0;
};

int64_t CountOf(const WeightShape& weight) {
  int64_t count = 1;
  for (const int64_t size : weight.shape) count *= size;
  return count;
}

DataType TypeOf(const WeightShape& weight, DataType compute) {
  return weight.shape.size() == 2 ? compute : DataType::kFloat32;
}

// The host keeps the class token's row and the norm after pooling.
bool IsOfDevice(const std::string& name) {
  return name != "cls_token" && !absl::StartsWith(name, "norm.");
}

Layout LayoutOf(const EncoderConfig& config, DataType compute) {
  Layout layout;
  // A group is contiguous: q's weights, then k's and v's. Their biases are another group.
  std::map<std::string, std::vector<WeightShape>> groups;
  std::vector<std::string> order;
  for (const WeightShape& weight : WeightShapes(config)) {
    if (!IsOfDevice(weight.name)) continue;
    std::string group = weight.name;
    for (const char* projection : {".q_proj.", ".k_proj.", ".v_proj."}) {
      const size_t at = group.find(projection);
      if (at != std::string::npos) group.replace(at + 1, 1, "q_k_v");
    }
    if (!groups.contains(group)) order.push_back(group);
    groups[group].push_back(weight);
  }
  for (const std::string& group : order) {
    layout.bytes = (layout.bytes + kPlaceBytes - 1) / kPlaceBytes * kPlaceBytes;
    for (const WeightShape& weight : groups[group]) {
      layout.places[weight.name] = layout.bytes;
      layout.bytes += CountOf(weight) * ElementBytes(TypeOf(weight, compute));
    }
  }
  return layout;
}

}  // namespace

int64_t DeviceWeightBytes(const EncoderConfig& config, DataType compute) {
  return LayoutOf(config, compute).bytes;
}

absl::StatusOr<std::unique_ptr<DeviceWeights>> DeviceWeights::Load(const EncoderFolder& folder,
                                                                   DataType compute,
                                                                   Device& device) {
  std::unique_ptr<DeviceWeights> weights(new DeviceWeights);
  Layout layout = LayoutOf(folder.config(), compute);
  ASSIGN_OR_RETURN(weights->memory_, device.Allocate(layout.bytes));
  weights->places_ = std::move(layout.places);
  RETURN_IF_ERROR(weights->CopyIn(folder, compute, device));
  weights->FindParts(folder.config());
  return weights;
}

absl::Status DeviceWeights::CopyIn(const EncoderFolder& folder, DataType compute, Device& device) {
  for (const WeightShape& weight : WeightShapes(folder.config())) {
    if (!IsOfDevice(weight.name)) continue;
    ASSIGN_OR_RETURN(const std::vector<float> floats, folder.Floats(weight.name));
    std::span<const std::byte> bytes = std::as_bytes(std::span(floats));
    std::vector<uint16_t> narrow;
    if (TypeOf(weight, compute) == DataType::kBFloat16) {
      narrow.reserve(floats.size());
      for (const float value : floats) narrow.push_back(FloatToBFloat16(value));
      bytes = std::as_bytes(std::span(narrow));
    }
    const absl::Status status =
        device.CopyIn(memory_->data() + places_.at(weight.name), bytes.data(), std::ssize(bytes));
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(folder.path(), ": ", weight.name, ": ", status.message()));
    }
  }
  // Another device of the GPU does not wait for these copies, so this call reads back the last
  // byte.
  std::byte last{};
  return memory_->bytes() == 0 ? absl::OkStatus()
                               : device.CopyOut(&last, memory_->data() + memory_->bytes() - 1, 1);
}

const float* DeviceWeights::Numbers(const std::string& name) const {
  return reinterpret_cast<const float*>(memory_->data() + places_.at(name));
}

DeviceNorm DeviceWeights::Norm(const std::string& name, double epsilon) const {
  return {.weight = Numbers(name + ".weight"),
          .bias = Numbers(name + ".bias"),
          .epsilon = static_cast<float>(epsilon)};
}

DeviceMatrix DeviceWeights::Matrix(const std::string& name, int64_t out, int64_t in) const {
  return {.weights = memory_->data() + places_.at(name + ".weight"),
          .bias = Numbers(name + ".bias"),
          .out = out,
          .in = in};
}

void DeviceWeights::FindParts(const EncoderConfig& config) {
  const int64_t width = config.embed_dim, ffn = config.ffn_dim;
  const double epsilon = config.layer_norm_eps;
  if (config.input_dim > 0) projection_ = Matrix("patch_embed.proj", width, config.input_dim);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string name = absl::StrCat("encoder.layers.", i, ".");
    const std::string attention = name + "self_attn.";
    layers_.push_back({.attention_norm = Norm(name + "self_attn_layer_norm", epsilon),
                       .q_k_v = Matrix(attention + "q_proj", 3 * width, width),
                       .inner_attention_norm = Norm(attention + "inner_attn_ln", epsilon),
                       .out = Matrix(attention + "out_proj", width, width),
                       .ffn_norm = Norm(name + "final_layer_norm", epsilon),
                       .fc1 = Matrix(name + "ffn.fc1", ffn, width),
                       .inner_ffn_norm = Norm(name + "ffn.ffn_layernorm", epsilon),
                       .fc2 = Matrix(name + "ffn.fc2", width, ffn)});
  }
  if (config.output_norm) output_norm_ = Norm("encoder.layer_norm", epsilon);
}

}  // namespace hilbert_ring
