// Exponents of softmax weights from scores, at a scale of any size.
//
//   weight = 2^((score * factor - greatest * factor) * log2)
//
// The factor is 1 except at the ends of float32. There it keeps differences of scores, and the
// scale times log2(e), within float32's normal numbers.
#pragma once

#include <numbers>

namespace hilbert_ring {

struct ScoreUnit {
  float factor = 1;  // a power of two: of a score before the scale
  float log2 = 1;    // > 0: of a difference of such scores

  bool IsOrdinary() const { return factor == 1; }
};

// The unit of weights exp(scale * difference); scale: > 0.
inline ScoreUnit ScoreUnitOf(float scale) {
  // From here on a difference that overflows float32 gives weight 0, like the exact difference.
  constexpr float kLeast = 0x1p-118f;
  // 2^128 / log2(e), rounded down: up to it the product with log2(e) is finite.
  constexpr float kGreatest = 0x1.62e42ep+127f;
  const float factor = scale < kLeast ? 0x1p-32f : scale > kGreatest ? 2.0f : 1.0f;
  return {.factor = factor,
          .log2 = static_cast<float>(double{scale} / double{factor} * std::numbers::log2e)};
}

}  // namespace hilbert_ring
