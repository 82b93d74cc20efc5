#include "engine/device/cpu/lane_end.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hilbert_ring {
namespace {

// The least share of a part that is not empty: infinities and NaN in it outlast any weight.
constexpr double kLeastShare = std::numeric_limits<double>::min();

}  // namespace

MergeShares MergeKeys(const LaneEnd& end, float& state_max, float& state_sum) {
  const double scale = end.scale;
  const float top = std::max(state_max, end.row_max);
  const auto weight = [&](float max) { return std::exp(scale * (double{max} - double{top})); };
  const double before = state_sum == 0 ? 0.0 : state_sum * weight(state_max);
  const double now = end.sum * weight(end.row_max);
  const double sum = before + now;
  const double old_share = state_sum == 0 ? 0.0 : std::max(kLeastShare, before / sum);
  state_max = top;
  state_sum = static_cast<float>(sum);
  return {.before = old_share, .now = std::max(kLeastShare, now / sum)};
}

}  // namespace hilbert_ring
