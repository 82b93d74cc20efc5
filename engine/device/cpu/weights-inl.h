// Softmax of the scores of one lane block and key tile.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_WEIGHTS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_WEIGHTS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_WEIGHTS_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "engine/device/cpu/exp2-inl.h"
#include "engine/device/cpu/key_tile.h"
#include "engine/device/cpu/product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// The greatest score so far, or 0 in place of -infinity: -infinity - -infinity is NaN.
HWY_INLINE LaneVector Finite(LaneVector row_max) {
  return hn::IfThenZeroElse(hn::Eq(row_max, hn::Set(LaneTag(), kNegativeInfinity)), row_max);
}

inline void MultiplyScores(const LaneBlock& block, const KeyTile& tile, int64_t lanes) {
  const LaneTag d;
  const auto factor = hn::Set(d, tile.unit.factor);
  for (int64_t i = 0; i < tile.count * lanes; i += hn::Lanes(d)) {
    hn::Store(hn::Mul(hn::Load(d, block.scores + i), factor), d, block.scores + i);
  }
}

// Works on the vector of lanes from b on: scores of hidden keys become -infinity, the maximum moves
// on, and rescale becomes the factor of earlier sums.
template <bool kMasked>
HWY_INLINE void MoveMaximum(const LaneBlock& block, const KeyTile& tile, int64_t lanes, int64_t b) {
  const LaneTag d;
  const auto hidden = hn::Set(d, kNegativeInfinity);
  const auto limit = kMasked ? hn::Load(d, block.limits + b) : hidden;
  const auto score = [&](int64_t j) HWY_ATTR {
    float* at = block.scores + j * lanes + b;
    if constexpr (!kMasked) return hn::Load(d, at);
    const auto seen = hn::Lt(hn::Set(d, tile.ranks[j]), limit);
    const auto masked = hn::IfThenElse(seen, hn::Load(d, at), hidden);
    hn::Store(masked, d, at);
    return masked;
  };
  // Several chains: a maximum waits for the maximum before.
  LaneVector greatest[4] = {hidden, hidden, hidden, hidden};
  int64_t j = 0;
  for (; j + 4 <= tile.count; j += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) greatest[i] = hn::Max(greatest[i], score(j + i));
  }
  for (; j < tile.count; ++j) greatest[0] = hn::Max(greatest[0], score(j));
  const auto before = hn::Load(d, block.row_max + b);
  const auto after = hn::Max(
      before, hn::Max(hn::Max(greatest[0], greatest[1]), hn::Max(greatest[2], greatest[3])));
  hn::Store(after, d, block.row_max + b);
  // Differences are taken before the scale: differences of near scores are exact, at any size.
  hn::Store(Exp2(tile.unit.log2, 0)(hn::Sub(Finite(after), before)), d, block.rescale + b);
}

// Keys whose exponentials are computed together.
inline constexpr int kWeighedKeys = 4;

// Turns scores of the vector of lanes from b on into weights, and moves its sums on.
template <typename Product>
class Weigher {
 public:
  HWY_INLINE Weigher(const LaneBlock& block, const KeyTile& tile, int64_t lanes, int64_t b)
      : block_(block),
        scores_(block.scores + b),
        lanes_(lanes),
        b_(b),
        exp2_(tile.unit.log2, tile.halvings),
        finite_(Finite(hn::Load(LaneTag(), block.row_max + b))),
        even_(hn::Zero(LaneTag())),
        non_finite_(even_),
        rounded_(even_) {}

  // Weighs kKeys keys from j on, an even number or the last key; their exponentials go step by step
  // together. Calls between() after each pair.
  template <int kKeys, typename Between>
  HWY_INLINE void Weigh(int64_t j, Between& between) {
    static_assert(kKeys == 1 || kKeys % 2 == 0);
    const LaneTag d;
    constexpr int kPaired = kKeys + kKeys % 2;
    LaneVector weights[kPaired];
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) weights[i] = hn::Sub(finite_, hn::Load(d, At(j + i)));  // below
    exp2_.template All<kKeys>(weights);
    if constexpr (kPaired > kKeys) weights[kKeys] = hn::Zero(d);
#pragma GCC unroll 8
    for (int a = 0; a < kPaired; a += 2) {
      const auto first = weights[a];
      const auto second = weights[a + 1];
      even_ = hn::Add(even_, first);
      non_finite_ = hn::Add(non_finite_, second);
      if constexpr (Product::kRoundsWeights) {
        const auto pair = BFloat16Pair(first, second);
        hn::Store(pair, d, At((j + a) / 2));  // over scores that are weighed already
        rounded_ = Product::AddPair(pair, rounded_);
      } else {
        hn::Store(first, d, At(j + a));
        if (a + 1 < kKeys) hn::Store(second, d, At(j + a + 1));
      }
      if (a + 1 < kKeys) between();
    }
  }

  HWY_INLINE void End() const {
    const LaneTag d;
    const auto rescale = hn::Load(d, block_.rescale + b_);
    const auto add = [&](float* sum, LaneVector part) HWY_ATTR {
      hn::Store(hn::MulAdd(hn::Load(d, sum), rescale, part), d, sum);
    };
    add(block_.sum + b_, hn::Add(even_, non_finite_));
    if constexpr (Product::kRoundsWeights) add(block_.rounded_sum + b_, rounded_);
  }

  HWY_INLINE float* At(int64_t j) const { return scores_ + j * lanes_; }

 private:
  const LaneBlock& block_;
  float* HWY_RESTRICT scores_;
  int64_t lanes_;
  int64_t b_;
  Exp2 exp2_;
  LaneVector finite_, even_, non_finite_, rounded_;
};

struct Nothing {
  HWY_INLINE void operator()() const {}
};

// Turns scores into weights exp(scale * (score - row_max)), as elements of the product. Maxima and
// sums move on, and rescale becomes the factor of earlier sums. A lane that saw no key keeps the
// maximum -infinity. A score of NaN or +infinity makes the sum NaN for good.
template <typename Product, int kVectors, typename Between = Nothing>
HWY_INLINE void Weights(const LaneBlock& block, const KeyTile& tile, Between&& between = {}) {
  const int64_t n = hn::Lanes(LaneTag());
  const int64_t lanes = kVectors * n;
  if (!tile.unit.IsOrdinary()) MultiplyScores(block, tile, lanes);
  for (int64_t b = 0; b < lanes; b += n) {
    if (tile.ranks != nullptr) {
      MoveMaximum<true>(block, tile, lanes, b);
    } else {
      MoveMaximum<false>(block, tile, lanes, b);
    }
  }
  for (int64_t b = 0; b < lanes; b += n) {
    Weigher<Product> weigher(block, tile, lanes, b);
    int64_t j = 0;
    for (; j + kWeighedKeys <= tile.count; j += kWeighedKeys) {
      weigher.template Weigh<kWeighedKeys>(j, between);
    }
    for (; j + 2 <= tile.count; j += 2) weigher.template Weigh<2>(j, between);
    if (j < tile.count) weigher.template Weigh<1>(j, between);
    weigher.End();
    int64_t rows = (tile.count + Product::kTerms - 1) / Product::kTerms;
    for (; rows % Product::kWeightRows != 0; ++rows) {
      hn::Store(hn::Zero(LaneTag()), LaneTag(), weigher.At(rows));
    }
  }
}

// Adds values that are not finite to `non_finite` of the lanes that see them. A finite weight
// changes neither infinity nor NaN; a weight of 0, of a score of -infinity, makes NaN of both.
inline void AddNonFiniteValues(const LaneBlock& block, const KeyTile& tile, int64_t lanes) {
  const LaneTag d;
  const auto hidden = hn::Set(d, kNegativeInfinity);
  for (const NonFiniteValue& non_finite : tile.non_finite) {
    if (non_finite.j >= tile.count) continue;
    const auto value = hn::Set(d, non_finite.value);
    const auto nothing = hn::Mul(value, hn::Zero(d));
    for (int64_t b = 0; b < lanes; b += hn::Lanes(d)) {
      const auto score =
          hn::Mul(hn::Load(d, block.scores + non_finite.j * lanes + b), hn::Set(d, tile.scale));
      auto added = hn::IfThenElse(hn::Eq(score, hidden), nothing, value);
      if (tile.ranks != nullptr) {
        const auto seen =
            hn::Lt(hn::Set(d, tile.ranks[non_finite.j]), hn::Load(d, block.limits + b));
        added = hn::IfThenElseZero(seen, added);
      }
      if (block.starts != nullptr) {
        const auto j = hn::Set(d, static_cast<float>(non_finite.j));
        added = hn::IfThenElseZero(hn::Ge(j, hn::Load(d, block.starts + b)), added);
      }
      float* at = block.non_finite + non_finite.x * lanes + b;
      hn::Store(hn::Add(hn::Load(d, at), added), d, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_WEIGHTS_INL_H_
