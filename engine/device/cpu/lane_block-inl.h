// Attention of one lane block (1 to 3 vectors of lanes) on one key tile.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_
#undef HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_LANE_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/coming_rows.h"
#include "engine/device/cpu/exp2-inl.h"
#include "engine/device/cpu/key_tile.h"
#include "engine/device/cpu/key_visibility.h"
#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/score_change-inl.h"
#include "engine/device/cpu/weights-inl.h"
#include "engine/device/score_unit.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Dims whose products are summed before they are added to a score, to bound rounding errors. Runs
// of 16 have half the error of 64, and cost 8 % at head dim 64 (AVX2, AMD EPYC Zen 3).
inline constexpr int64_t kDimRun = 64;

// scores[j] = queries . keys[j] for kKeys keys at a time. Loops of both products are unrolled four
// times: on AVX2 (AMD EPYC Zen 3) medians gained 3 to 7 %, best times nothing.
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
    float* to = block.scores + j * lanes;
    for (int64_t begin = 0; begin < dim; begin += kRun) {
      const int64_t end = std::min(dim, begin + kRun);
      LaneVector acc[kKeys][kVectors];
#pragma GCC unroll 16
      for (int a = 0; a < kKeys; ++a) {
#pragma GCC unroll 4
        for (int b = 0; b < kVectors; ++b) acc[a][b] = hn::Zero(d);
      }
      const float* HWY_RESTRICT query = block.queries + begin * lanes;
#pragma GCC unroll 4
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
      asm("" : "+r"(to));  // else a compiler holds all addresses below during the products
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

// out = out * rescale + weights . values, kDims value dims at a time.
template <typename Product, int kVectors, int kDims>
HWY_INLINE void AddValues(const LaneBlock& block, const KeyTile& tile) {
  static_assert(8 % kDims == 0);
  const LaneTag d;
  const int64_t n = hn::Lanes(d);
  const int64_t lanes = kVectors * n;
  constexpr int64_t kRows = kValueRows<Product>;
  const int64_t rows = (tile.count + Product::kTerms - 1) / Product::kTerms;
  // Copies: to a compiler a vector's store may change the block's pointers.
  const float* HWY_RESTRICT const rescale = block.rescale;
  float* HWY_RESTRICT out = block.out;
  for (int64_t x = 0; x < tile.value_dim; x += kDims, out += kDims * lanes) {
    const float* HWY_RESTRICT value = tile.values + x / 8 * 8 * kRows + x % 8;
    const float* HWY_RESTRICT weight = block.scores;
    LaneVector acc[kDims][kVectors];
#pragma GCC unroll 16
    for (int a = 0; a < kDims; ++a) {
#pragma GCC unroll 4
      for (int b = 0; b < kVectors; ++b) acc[a][b] = hn::Zero(d);
    }
#pragma GCC unroll 4
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
      const auto factor = hn::Load(d, rescale + b * n);
#pragma GCC unroll 16
      for (int a = 0; a < kDims; ++a) {
        float* at = out + a * lanes + b * n;
        hn::Store(hn::MulAdd(hn::Load(d, at), factor, acc[a][b]), d, at);
      }
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
  ChangeScores(block, tile, kVectors * hn::Lanes(LaneTag()));
  if (!tile.non_finite.empty()) AddNonFiniteValues(block, tile, kVectors * hn::Lanes(LaneTag()));
  Weights<Product, kVectors>(block, tile);
  AddValues<Product, kVectors, kAtOnce>(block, tile);
}

// Keys or value dims at once beside 2 or 3 vectors of lanes. 12 accumulators, 3 lane vectors and a
// broadcast fill AVX2's 16 registers. AVX-512 has 32. 8 at once gain for bfloat16 pairs on AMD's
// processors and for float32 on Intel's: 83 % of the rate in registers, 76 % with 4 (a Xeon with
// AMX).
inline constexpr int kManyAtOnce = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

template <typename Product>
void AttendBlock(const LaneBlock& block, int64_t vectors, const KeyTile& tile) {
  static_assert(Product::kKeyTile <= kMaxKeyTile);
  static_assert(Product::kKeyTile * Product::kBlockVectors *
                    static_cast<int64_t>(hn::MaxLanes(LaneTag())) <=
                kMaxScores);
  switch (vectors) {
    case 1:
      return AttendVectors<Product, 1, 8>(block, tile);
    case 2:
      return AttendVectors<Product, 2, kManyAtOnce>(block, tile);
    default:
      return AttendVectors<Product, 3, kManyAtOnce>(block, tile);
  }
}

// The blocks of one key tile in sequence. A product that works on several at a time specializes it.
template <typename Product>
class BlockSequence {
 public:
  explicit BlockSequence(AttentionScratch&) {}
  void Next(const LaneBlock& block, int64_t vectors, const KeyTile& tile) {
    AttendBlock<Product>(block, vectors, tile);
  }
  // After it the tile's keys and values are not read, and its results are complete.
  void End() {}
};

// Adds run to total; run stays as it is.
template <typename Product>
void FoldBlock(const LaneBlock& run, const LaneBlock& total, int64_t lanes, int64_t value_dim,
               const ScoreUnit& unit) {
  const LaneTag d;
  for (int64_t b = 0; b < lanes; b += hn::Lanes(d)) {
    const auto run_max = hn::Load(d, run.row_max + b);
    const auto total_max = hn::Load(d, total.row_max + b);
    const auto row_max = hn::Max(run_max, total_max);
    const auto weight = [&](LaneVector of)
                            HWY_ATTR { return Exp2(unit.log2, 0)(hn::Sub(Finite(row_max), of)); };
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
