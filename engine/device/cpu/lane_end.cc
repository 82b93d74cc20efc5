#include "engine/device/cpu/lane_end.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hilbert_ring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of a part that is not empty; what is not finite in it outlasts any weight.
constexpr double kLeastShare = std::numeric_limits<double>::min();

}  // namespace

Sight LaneEnd::Seen() const {
  const float score = row_max * scale;
  if (std::isnan(sum) || (sum > 0 && score == kInfinity)) return Sight::kSpoilt;
  return sum == 0 || score == -kInfinity ? Sight::kNothing : Sight::kKeys;
}

float LaneEnd::Lse() const {
  switch (Seen()) {
    case Sight::kNothing:
      return -kInfinity;
    case Sight::kSpoilt:
      return std::numeric_limits<float>::quiet_NaN();
    case Sight::kKeys:
      break;
  }
  return static_cast<float>(static_cast<double>(row_max) * scale + std::log(sum));
}

MergeShares MergeKeys(const LaneEnd& end, float& state_max, float& state_sum) {
  const double scale = end.scale;
  const float top = std::max(state_max, end.row_max);
  const double before = state_sum == 0 ? 0.0 : state_sum * std::exp(scale * (state_max - top));
  const double now = end.sum * std::exp(scale * (end.row_max - top));
  const double sum = before + now;
  const double old_share = state_sum == 0 ? 0.0 : std::max(kLeastShare, before / sum);
  state_max = top;
  state_sum = static_cast<float>(sum);
  return {.before = old_share, .now = std::max(kLeastShare, now / sum)};
}

MergeShares MergeZeroKeys(int64_t count, float scale, float& state_max, float& state_sum) {
  if (count == 0 || std::isnan(state_sum)) return {};
  const double factor = std::abs(static_cast<double>(scale));
  const float top = std::max(state_max, 0.0f);
  const double before = state_sum == 0 ? 0.0 : state_sum * std::exp(factor * (state_max - top));
  const double sum = before + static_cast<double>(count) * std::exp(-factor * top);
  const double old_share = state_sum == 0 ? 0.0 : std::max(kLeastShare, before / sum);
  state_max = top;
  state_sum = static_cast<float>(sum);
  return {.before = old_share};
}

}  // namespace hilbert_ring
