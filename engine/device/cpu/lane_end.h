// What becomes of a row's sums when all keys of a task have passed: the row's result, or a part of
// it that is merged.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hilbert_ring {

enum class SeenScores {
  kNothing,  // no key, or none but of score -infinity
  kKeys,
  kNotFinite,  // a key whose score is NaN or +infinity
};

// A row's softmax in one task.
struct LaneEnd {
  float row_max = 0;  // of scores before the scale
  double sum = 0;     // of exp(scale * (score - row_max))
  float scale = 1;    // at least 0

  // Scores are float32: a product with the scale that overflows it is infinite.
  SeenScores Seen() const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float score = row_max * scale;
    if (std::isnan(sum) || (sum > 0 && score == kInfinity)) return SeenScores::kNotFinite;
    return sum == 0 || score == -kInfinity ? SeenScores::kNothing : SeenScores::kKeys;
  }

  // Natural logarithm of the denominator, where `seen` is Seen().
  float Lse(SeenScores seen) const {
    if (seen == SeenScores::kKeys) {
      return static_cast<float>(static_cast<double>(row_max) * scale + std::log(sum));
    }
    return seen == SeenScores::kNothing ? -std::numeric_limits<float>::infinity()
                                        : std::numeric_limits<float>::quiet_NaN();
  }
};

// out = out * before + average * now, in float64, so that an element is rounded once a merge.
struct MergeShares {
  double before = 1;
  double now = 0;
};

// An average of numbers up to `greatest` in magnitude: where those are finite and rounding took it
// beyond float32, the greatest float32 of its sign; others, of infinities and NaN, as they are.
inline double NotBeyond(float greatest, double average) {
  const double most = std::max<double>(std::numeric_limits<float>::max(), std::abs(greatest));
  return average > most ? most : average < -most ? -most : average;
}

// Moves the state of a row on by keys that it has seen in a task, and says how out is to follow.
// The sum of the state is no NaN.
MergeShares MergeKeys(const LaneEnd& end, float& state_max, float& state_sum);

}  // namespace hilbert_ring
