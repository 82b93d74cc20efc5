#include "engine/model/files/pooling.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/spec/field_error.h"

namespace hilbert_ring {
namespace {

// Requests may repeat states, so the limit is above the number of states of any model.
constexpr int64_t kMostStates = 4096;

}  // namespace

int64_t MapColumnsOf(const EncoderConfig& config, const EncoderOutputs& outputs) {
  if (!outputs.attention_map) return 0;
  return outputs.attention_map->columns == MapColumns::kHeads ? config.heads : 1;
}

absl::Status CheckOutputs(const EncoderConfig& config, const EncoderOutputs& outputs) {
  if (outputs.states.empty()) {
    return WithField(absl::InvalidArgumentError("states is empty, must name one at least"),
                     "states");
  }
  if (std::ssize(outputs.states) > kMostStates) {
    return WithField(
        absl::OutOfRangeError(absl::StrCat("states has ", outputs.states.size(),
                                           " entries, must have at most ", kMostStates)),
        "states", kMostStates);
  }
  for (size_t i = 0; i < outputs.states.size(); ++i) {
    const int64_t state = outputs.states[i];
    const std::string field = absl::StrCat("states[", i, "]");
    if (state < 0 || state > config.layers) {
      return WithField(absl::OutOfRangeError(absl::StrCat(field, " is ", state, ", must be 0 to ",
                                                          config.layers, ", the model's layers")),
                       field, config.layers);
    }
  }
  if (outputs.attention_map) {
    const int64_t layer = outputs.attention_map->layer;
    if (layer < 1 || layer > config.layers) {
      return WithField(
          absl::OutOfRangeError(absl::StrCat("attention_map.layer is ", layer, ", must be 1 to ",
                                             config.layers, ", the model's layers")),
          "attention_map.layer", config.layers);
    }
    if (!config.class_token) {
      return WithField(
          absl::InvalidArgumentError("attention_map must be absent: the model has no class token"),
          "attention_map");
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

SlidePool::SlidePool(const SlideRows& slides, Pooling pooling, int64_t dim) : dim_(dim) {
  for (int64_t slide = 0; slide < slides.slides(); ++slide) {
    const int64_t tiles = slides.FirstTile(slide + 1) - slides.FirstTile(slide);
    rows_.push_back(pooling == Pooling::kClass ? slides.class_tokens() : tiles);
  }
  to_come_ = rows_;
  sums_.resize(rows_.size() * static_cast<size_t>(dim));
}

void SlidePool::Add(const PooledPart& part) {
  const int64_t added = std::ssize(part.rows);
  for (int64_t i = 0; i < added; ++i) to_come_[part.first_slide + i] -= part.rows[i];
  double* const sums = sums_.data() + part.first_slide * dim_;
  for (int64_t x = 0; x < added * dim_; ++x) sums[x] += part.sums[x];
}

absl::StatusOr<std::vector<float>> SlidePool::Finish(const LayerNorm& norm) const {
  for (size_t slide = 0; slide < to_come_.size(); ++slide) {
    if (to_come_[slide] == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(to_come_[slide], " of the ", rows_[slide],
                                                   " rows of slide ", slide, " are missing"));
  }
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
