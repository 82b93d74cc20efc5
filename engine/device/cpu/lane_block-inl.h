// Attention of one lane block (1 to 3 vectors of lanes) on one key tile, for one Highway target.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_
#undef HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "engine/device/cpu/coming_rows.h"
#include "engine/device/cpu/exp2-inl.h"
#include "engine/device/cpu/key_visibility.h"
#include "engine/device/cpu/product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// Dims whose products are summed before they are added to a score: a bound on how the rounding
// error of a long dot product grows. Runs of 16 cost 8 % at head dim 64 against one of 64 (AVX2,
// AMD EPYC Zen 3) for half of its error.
inline constexpr int64_t kDimRun = 64;

// Pointers to the parts of the scratch that belong to one lane block; lanes = vectors *
// Lanes(LaneTag). Queries, keys, values and weights are elements of the product, each kTerms
// numbers.
struct LaneBlock {
  const float* queries;  // [head_dim / kTerms][lanes]
  const float* limits;   // [lanes]
  float* row_max;        // [lanes], of scores before the scale
  float* sum;            // [lanes]
  float* rounded_sum;    // [lanes]
  float* out;            // [value_dim][lanes]
  float* scores;         // [kKeyTile][lanes], then weights [kKeyTile / kTerms][lanes]
  float* rescale;        // [lanes]
  float* odd;            // [value_dim][lanes]
};

// A value that is not finite: element x of key j of a tile.
struct OddValue {
  int64_t j;
  int64_t x;
  float value;
};

struct KeyTile {
  const float* keys;    // [kKeyTile][head_dim / kTerms], zero rows up to a multiple of 8
  const float* values;  // [value_dim / 8][kKeyTile / kTerms][8]
  const float* ranks;   // [count]; null when all lanes see all keys
  int64_t count;
  int64_t head_dim;
  int64_t value_dim;
  float scale;                    // > 0
  int64_t halvings;               // weights are 2^-halvings of themselves
  bool exact_scores;              // no product of a score may be taken for 0
  std::span<const OddValue> odd;  // in `values` they are 0
  ComingRows coming;              // asked for while scores are computed
};

// The greatest of scores seen before and now, or 0 in place of -infinity: any finite number keeps
// -infinity - -infinity, which is NaN, away.
HWY_INLINE LaneVector Finite(LaneVector row_max) {
  return hn::IfThenZeroElse(hn::Eq(row_max, hn::Set(LaneTag(), kNegativeInfinity)), row_max);
}

// scores[j] = queries . keys[j] for kKeys keys at a time.
template <typename Product, int kVectors, int kKeys>
HWY_INLINE void Scores(const LaneBlock& block, const KeyTile& tile) {
  const LaneTag d;
  const int64_t n = hn::Lanes(d);
  const int64_t lanes = kVectors * n;
  constexpr int64_t kRun = kDimRun / Product::kTerms;
  const int64_t dim = tile.head_dim / Product::kTerms;
  ComingLines coming(tile.coming, (tile.count + kKeys - 1) / kKeys);
  for (int64_t j = 0; j < tile.count; j += kKeys) {
    coming.Next();
    const float* HWY_RESTRICT key = tile.keys + j * dim;
    float* HWY_RESTRICT to = block.scores + j * lanes;
    for (int64_t begin = 0; begin < dim; begin += kRun) {
      const int64_t end = std::min(dim, begin + kRun);
      LaneVector acc[kKeys][kVectors];
#pragma GCC unroll 16
      for (int a = 0; a < kKeys; ++a) {
#pragma GCC unroll 4
        for (int b = 0; b < kVectors; ++b) acc[a][b] = hn::Zero(d);
      }
      const float* HWY_RESTRICT query = block.queries + begin * lanes;
      for (int64_t x = begin; x < end; ++x, query += lanes) {
        LaneVector q[kVectors];
#pragma GCC unroll 4
        for (int b = 0; b < kVectors; ++b) q[b] = hn::Load(d, query + b * n);
#pragma GCC unroll 16
        for (int a = 0; a < kKeys; ++a) {
          const auto k = hn::Set(d, key[a * dim + x]);
#pragma GCC unroll 4
          for (int b = 0; b < kVectors; ++b) acc[a][b] = Product::MulAdd(k, q[b], acc[a][b]);
        }
      }
#pragma GCC unroll 16
      for (int a = 0; a < kKeys; ++a) {
#pragma GCC unroll 4
        for (int b = 0; b < kVectors; ++b) {
          float* at = to + a * lanes + b * n;
          hn::Store(begin == 0 ? acc[a][b] : hn::Add(hn::Load(d, at), acc[a][b]), d, at);
        }
      }
    }
  }
}

// Scores become weights exp(scale * (score - row_max)), as elements of the product; maxima and sums
// move on, rescale is the factor for what was summed before. A lane that has seen no key keeps the
// maximum -infinity. A score that is NaN or +infinity makes the sum NaN for good, whatever becomes
// of the maximum.
template <typename Product, int kVectors, bool kMasked>
HWY_INLINE void Weights(const LaneBlock& block, const KeyTile& tile) {
  const LaneTag d;
  const int64_t n = hn::Lanes(d);
  const int64_t lanes = kVectors * n;
  const auto hidden = hn::Set(d, kNegativeInfinity);
  const auto scale = Log2Scale(tile.scale);
  const Exp2 exp2(tile.halvings);
  for (int64_t b = 0; b < lanes; b += n) {
    float* HWY_RESTRICT scores = block.scores + b;
    auto greatest = hidden;
    if constexpr (kMasked) {
      const auto limit = hn::Load(d, block.limits + b);
      for (int64_t j = 0; j < tile.count; ++j) {
        const auto seen = hn::Lt(hn::Set(d, tile.ranks[j]), limit);
        const auto score = hn::IfThenElse(seen, hn::Load(d, scores + j * lanes), hidden);
        hn::Store(score, d, scores + j * lanes);
        greatest = hn::Max(greatest, score);
      }
    } else {
      for (int64_t j = 0; j < tile.count; ++j) {
        greatest = hn::Max(greatest, hn::Load(d, scores + j * lanes));
      }
    }
    const auto before = hn::Load(d, block.row_max + b);
    const auto after = hn::Max(before, greatest);
    hn::Store(after, d, block.row_max + b);
    // Differences are taken before the scale: those of near scores are exact, at any size.
    const auto finite = Finite(after);
    const auto rescale = Exp2(0)(hn::Mul(hn::Sub(before, finite), scale));
    hn::Store(rescale, d, block.rescale + b);
    const auto weigh = [&](float* at) HWY_ATTR {
      const auto weight = exp2(hn::Mul(hn::Sub(hn::Load(d, at), finite), scale));
      if constexpr (!Product::kRoundsWeights) hn::Store(weight, d, at);
      return weight;
    };
    auto rounded = hn::Zero(d);
    // Writes over scores of keys that are weighed already.
    const auto pair = [&](int64_t j, LaneVector first, LaneVector second) HWY_ATTR {
      if constexpr (Product::kRoundsWeights) {
        const auto weights = BFloat16Pair(first, second);
        hn::Store(weights, d, scores + j / 2 * lanes);
        rounded =
            Product::MulAdd(weights, BFloat16Pair(hn::Set(d, 1.0f), hn::Set(d, 1.0f)), rounded);
      }
    };
    auto even = hn::Zero(d);
    auto odd = hn::Zero(d);
    int64_t j = 0;
    for (; j + 2 <= tile.count; j += 2) {
      const auto first = weigh(scores + j * lanes);
      const auto second = weigh(scores + (j + 1) * lanes);
      even = hn::Add(even, first);
      odd = hn::Add(odd, second);
      pair(j, first, second);
    }
    if (j < tile.count) {
      const auto last = weigh(scores + j * lanes);
      even = hn::Add(even, last);
      pair(j, last, hn::Zero(d));
    }
    const auto sum = hn::MulAdd(hn::Load(d, block.sum + b), rescale, hn::Add(even, odd));
    hn::Store(sum, d, block.sum + b);
    if constexpr (Product::kRoundsWeights) {
      float* at = block.rounded_sum + b;
      hn::Store(hn::MulAdd(hn::Load(d, at), rescale, rounded), d, at);
    }
  }
}

// out = out * rescale + weights . values, kDims value dims at a time.
template <typename Product, int kVectors, int kDims>
HWY_INLINE void AddValues(const LaneBlock& block, const KeyTile& tile) {
  static_assert(8 % kDims == 0);
  const LaneTag d;
  const int64_t n = hn::Lanes(d);
  const int64_t lanes = kVectors * n;
  constexpr int64_t kRows = kKeyTile / Product::kTerms;
  const int64_t rows = (tile.count + Product::kTerms - 1) / Product::kTerms;
  for (int64_t x = 0; x < tile.value_dim; x += kDims) {
    const float* HWY_RESTRICT value = tile.values + x / 8 * 8 * kRows + x % 8;
    const float* HWY_RESTRICT weight = block.scores;
    LaneVector acc[kDims][kVectors];
#pragma GCC unroll 16
    for (int a = 0; a < kDims; ++a) {
#pragma GCC unroll 4
      for (int b = 0; b < kVectors; ++b) acc[a][b] = hn::Zero(d);
    }
    for (int64_t j = 0; j < rows; ++j, weight += lanes, value += 8) {
      LaneVector w[kVectors];
#pragma GCC unroll 4
      for (int b = 0; b < kVectors; ++b) w[b] = hn::Load(d, weight + b * n);
#pragma GCC unroll 16
      for (int a = 0; a < kDims; ++a) {
        const auto v = hn::Set(d, value[a]);
#pragma GCC unroll 4
        for (int b = 0; b < kVectors; ++b) acc[a][b] = Product::MulAdd(v, w[b], acc[a][b]);
      }
    }
#pragma GCC unroll 4
    for (int b = 0; b < kVectors; ++b) {
      const auto rescale = hn::Load(d, block.rescale + b * n);
#pragma GCC unroll 16
      for (int a = 0; a < kDims; ++a) {
        float* at = block.out + (x + a) * lanes + b * n;
        hn::Store(hn::MulAdd(hn::Load(d, at), rescale, acc[a][b]), d, at);
      }
    }
  }
}

// Adds values that are not finite to `odd` of the lanes that see them, whatever their weight: a
// finite weight changes neither infinity nor NaN, and a weight of 0, of a score of -infinity, makes
// NaN of both.
inline void AddOddValues(const LaneBlock& block, const KeyTile& tile, int64_t lanes) {
  const LaneTag d;
  const auto hidden = hn::Set(d, kNegativeInfinity);
  for (const OddValue& odd : tile.odd) {
    if (odd.j >= tile.count) continue;
    const auto value = hn::Set(d, odd.value);
    const auto nothing = hn::Mul(value, hn::Zero(d));
    for (int64_t b = 0; b < lanes; b += hn::Lanes(d)) {
      const auto score =
          hn::Mul(hn::Load(d, block.scores + odd.j * lanes + b), hn::Set(d, tile.scale));
      auto added = hn::IfThenElse(hn::Eq(score, hidden), nothing, value);
      if (tile.ranks != nullptr) {
        const auto seen = hn::Lt(hn::Set(d, tile.ranks[odd.j]), hn::Load(d, block.limits + b));
        added = hn::IfThenElseZero(seen, added);
      }
      float* at = block.odd + odd.x * lanes + b;
      hn::Store(hn::Add(hn::Load(d, at), added), d, at);
    }
  }
}

template <typename Product, int kVectors, int kAtOnce>
HWY_INLINE void AttendVectors(const LaneBlock& block, const KeyTile& tile) {
  using Exact = typename Product::Exact;
  bool exact = false;
  if constexpr (!std::is_same_v<Product, Exact>) {
    exact = tile.exact_scores;
    if (exact) Scores<Exact, kVectors, kAtOnce>(block, tile);
  }
  if (!exact) Scores<Product, kVectors, kAtOnce>(block, tile);
  if (!tile.odd.empty()) AddOddValues(block, tile, kVectors * hn::Lanes(LaneTag()));
  if (tile.ranks != nullptr) {
    Weights<Product, kVectors, true>(block, tile);
  } else {
    Weights<Product, kVectors, false>(block, tile);
  }
  AddValues<Product, kVectors, kAtOnce>(block, tile);
}

// Keys or value dims at once beside 2 or 3 vectors of lanes. 12 accumulators, 3 lane vectors and a
// broadcast fill AVX2's 16 registers. AVX-512 has 32: with 8, pairs of bfloat16 gain
// (docs/benchmarks.md), float32 does not.
template <typename Product>
inline constexpr int kManyAtOnce = HWY_TARGET <= HWY_AVX3&& Product::kTerms > 1 ? 8 : 4;

template <typename Product>
void AttendBlock(const LaneBlock& block, int64_t vectors, const KeyTile& tile) {
  switch (vectors) {
    case 1:
      return AttendVectors<Product, 1, 8>(block, tile);
    case 2:
      return AttendVectors<Product, 2, kManyAtOnce<Product>>(block, tile);
    default:
      return AttendVectors<Product, 3, kManyAtOnce<Product>>(block, tile);
  }
}

// total = total and run together; run is left as it is. scale: of the scores, > 0.
template <typename Product>
void FoldBlock(const LaneBlock& run, const LaneBlock& total, int64_t lanes, int64_t value_dim,
               float scale) {
  const LaneTag d;
  for (int64_t b = 0; b < lanes; b += hn::Lanes(d)) {
    const auto run_max = hn::Load(d, run.row_max + b);
    const auto total_max = hn::Load(d, total.row_max + b);
    const auto row_max = hn::Max(run_max, total_max);
    const auto weight = [&](LaneVector of) HWY_ATTR {
      return Exp2(0)(hn::Mul(hn::Sub(of, Finite(row_max)), Log2Scale(scale)));
    };
    const auto of_run = weight(run_max);
    const auto of_total = weight(total_max);
    hn::Store(row_max, d, total.row_max + b);
    const auto fold = [&](const float* from, float* to) HWY_ATTR {
      const auto before = hn::Mul(hn::Load(d, to), of_total);
      hn::Store(hn::MulAdd(hn::Load(d, from), of_run, before), d, to);
    };
    fold(run.sum + b, total.sum + b);
    if constexpr (Product::kRoundsWeights) fold(run.rounded_sum + b, total.rounded_sum + b);
    for (int64_t x = 0; x < value_dim; ++x)
      fold(run.out + x * lanes + b, total.out + x * lanes + b);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_
