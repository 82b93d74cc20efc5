#include "engine/model/pooling.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/spec/field_error.h"

namespace hilbert_ring {

absl::Status CheckOutputs(const EncoderConfig& config, const EncoderOutputs& outputs) {
  if (outputs.states.empty()) {
    return WithField(absl::InvalidArgumentError("states is empty, must name one at least"),
                     "states");
  }
  for (size_t i = 0; i < outputs.states.size(); ++i) {
    const int64_t state = outputs.states[i];
    const std::string field = absl::StrCat("states[", i, "]");
    if (state < 0 || state > config.layers) {
      return WithField(absl::OutOfRangeError(absl::StrCat(field, " is ", state, ", must be 0 to ",
                                                          config.layers, ", the model's layers")),
                       field, config.layers);
    }
    if (i > 0 && state <= outputs.states[i - 1]) {
      return WithField(absl::InvalidArgumentError(absl::StrCat(
                           field, " is ", state, ", must be above ", outputs.states[i - 1])),
                       field);
    }
  }
  if (outputs.pooling == Pooling::kNone) return absl::OkStatus();
  if (config.norm_eps == 0) {
    return WithField(absl::InvalidArgumentError(
                         "pooling must be none: the model has no norm behind pooling (norm_eps 0)"),
                     "pooling");
  }
  if (outputs.pooling == Pooling::kClass && !config.class_token) {
    return WithField(
        absl::InvalidArgumentError("pooling is class, but the model has no class token"),
        "pooling");
  }
  return absl::OkStatus();
}

void SlidePool::Add(const PooledPart& part) {
  for (size_t slide = 0; slide < part.rows.size(); ++slide) {
    rows_[part.first_slide + slide] += part.rows[slide];
    for (int64_t x = 0; x < dim_; ++x) {
      sums_[(part.first_slide + slide) * dim_ + x] += part.sums[slide * dim_ + x];
    }
  }
}

std::vector<float> SlidePool::Finish(const LayerNorm& norm) const {
  std::vector<float> pooled(sums_.size());
  const NormView view = norm.view();
  const auto dim = static_cast<double>(dim_);
  for (size_t slide = 0; slide < rows_.size(); ++slide) {
    const double* sums = sums_.data() + slide * dim_;
    const auto rows = static_cast<double>(rows_[slide]);
    double mean = 0, variance = 0;
    for (int64_t x = 0; x < dim_; ++x) mean += sums[x] / rows / dim;
    for (int64_t x = 0; x < dim_; ++x) variance += std::pow(sums[x] / rows - mean, 2) / dim;
    const double scale = 1 / std::sqrt(variance + view.epsilon);
    for (int64_t x = 0; x < dim_; ++x) {
      pooled[slide * dim_ + x] =
          static_cast<float>((sums[x] / rows - mean) * scale * view.weight[x] + view.bias[x]);
    }
  }
  return pooled;
}

}  // namespace hilbert_ring
