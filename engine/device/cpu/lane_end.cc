#include "engine/device/cpu/lane_end.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hilbert_ring {
namespace {

// The least share of a part that is not empty: infinities and NaN in it outlast any weight.
constexpr double kLeastShare = std::numeric_limits<double>::min();

}  // namespace

SunkEnd WithSink(const LaneEnd& end, float sink) {
  const SeenScores seen = end.Seen();
  if (seen == SeenScores::kNothing) return {.lse = sink};
  if (seen == SeenScores::kNotFinite) return {.lse = end.Lse(seen)};
  const double greatest = double{end.row_max} * end.scale;
  const double top = std::max(greatest, double{sink});
  const double keys = end.sum * std::exp(greatest - top);
  const double all = keys + std::exp(sink - top);
  return {.lse = static_cast<float>(top + std::log(all)), .share = keys / all};
}

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
