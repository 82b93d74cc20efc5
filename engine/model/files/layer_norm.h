// The weights of a layer norm.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace hilbert_ring {

// Weight and bias are [dim].
struct NormView {
  const float* weight = nullptr;
  const float* bias = nullptr;
  float epsilon = 0;
};

class LayerNorm {
 public:
  LayerNorm() = default;
  LayerNorm(std::vector<float> weight, std::vector<float> bias, double epsilon)
      : weight_(std::move(weight)), bias_(std::move(bias)), epsilon_(epsilon) {}

  int64_t dim() const { return static_cast<int64_t>(weight_.size()); }
  NormView view() const {
    return {
        .weight = weight_.data(), .bias = bias_.data(), .epsilon = static_cast<float>(epsilon_)};
  }

 private:
  std::vector<float> weight_, bias_;
  double epsilon_ = 0;
};

}  // namespace hilbert_ring
