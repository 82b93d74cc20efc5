// What becomes of a row's sums when all keys of a task have passed: the row's result, or a part of
// it that is merged.
#pragma once

#include <cstdint>

namespace hilbert_ring {

enum class Sight {
  kNothing,  // no key, or none but of score -infinity
  kKeys,
  kSpoilt,  // a key whose score is NaN or +infinity
};

// A row's softmax in one task.
struct LaneEnd {
  float row_max = 0;  // of scores before the scale
  double sum = 0;     // of exp(scale * (score - row_max))
  float scale = 1;    // at least 0

  // Scores are float32: a product with the scale that overflows it is infinite.
  Sight Seen() const;

  // Natural logarithm of the denominator.
  float Lse() const;
};

// out = out * before + average * now, in float64, so that an element is rounded once a merge.
struct MergeShares {
  double before = 1;
  double now = 0;
};

// Moves the state of a row on by keys that it has seen in a task, and says how out is to follow.
// The sum of the state is no NaN.
MergeShares MergeKeys(const LaneEnd& end, float& state_max, float& state_sum);

// Merges `count` keys of score 0 and values of 0 likewise.
MergeShares MergeZeroKeys(int64_t count, float scale, float& state_max, float& state_sum);

}  // namespace hilbert_ring
