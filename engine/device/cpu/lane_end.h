// The end of a row after all keys of a task: its result, or a part that is merged.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hilbert_ring {

enum class SeenScores {
  kNothing,  // no score above -infinity
  kKeys,
  kNotFinite,  // a score is NaN or +infinity
};

struct LaneEnd {
  float row_max = 0;  // of scores before the scale
  double sum = 0;     // of exp(scale * (score - row_max))
  float scale = 1;    // at least 0

  // Scores are float32: a product with the scale that overflows is infinite.
  SeenScores Seen() const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float score = row_max * scale;
    if (std::isnan(sum) || (sum > 0 && score == kInfinity)) return SeenScores::kNotFinite;
    return sum == 0 || score == -kInfinity ? SeenScores::kNothing : SeenScores::kKeys;
  }

  // Natural logarithm of the denominator. seen: Seen().
  float Lse(SeenScores seen) const {
    if (seen == SeenScores::kKeys) {
      return static_cast<float>(static_cast<double>(row_max) * scale + std::log(sum));
    }
    return seen == SeenScores::kNothing ? -std::numeric_limits<float>::infinity()
                                        : std::numeric_limits<float>::quiet_NaN();
  }
};

// A row's result after its sink: out is the average of its keys times the share.
struct SunkEnd {
  float lse = 0;
  double share = 1;
};

// sink: a score, with a value of 0.
SunkEnd WithSink(const LaneEnd& end, float sink);

// out = out * before + average * now, in float64: an element is rounded once a merge.
struct MergeShares {
  double before = 1;
  double now = 0;
};

// An average of numbers up to `greatest` in magnitude. If they are finite and rounding took it
// beyond float32, the greatest float32 of its sign; infinities and NaN stay.
inline double NotBeyond(float greatest, double average) {
  const double most = std::max<double>(std::numeric_limits<float>::max(), std::abs(greatest));
  return average > most ? most : average < -most ? -most : average;
}

// Adds a task's visible keys to a row's state, whose sum is not NaN. Returns the shares for out.
MergeShares MergeKeys(const LaneEnd& end, float& state_max, float& state_sum);

}  // namespace hilbert_ring
