// The two matrix products of attention, on float32 numbers or pairs of bfloat16.
//
// A product defines the 32-bit element of packed queries, keys, values and weights: kTerms numbers
// that a dot product takes at once, stored as float. Keys come in tiles of kKeyTile.
//
// It also defines the scratch's layout. Lane blocks have up to kBlockVectors vectors. Zeros pad
// rows of queries and keys to a multiple of kRowElements elements, the number of rows of keys to
// one of kKeyRows, and of weights to one of kWeightRows.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_PRODUCT_INL_H_
#undef HILBERT_RING_DEVICE_CPU_PRODUCT_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_PRODUCT_INL_H_
#endif

#include <cstdint>

#include "engine/device/attention.h"
#include "engine/device/cpu/key_visibility.h"
#include "engine/spec/job_spec.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using LaneTag = hn::CappedTag<float, 16>;
using LaneVector = hn::Vec<LaneTag>;

struct LaneLayout {
  static constexpr int64_t kKeyTile = 64;
  static constexpr int64_t kBlockVectors = 3;
  static constexpr int64_t kRowElements = 1;
  static constexpr int64_t kKeyRows = 8;
  static constexpr int64_t kWeightRows = 1;
  static constexpr bool kTiles = false;

  // Returns whether the product computes the task, which has its type.
  static bool Takes(const AttentionTask&) { return true; }
};

// Takes tasks of every type, widened to float32.
struct FloatProduct : LaneLayout {
  // 128 against 64 was 1 to 2.5 % faster on AVX2 (AMD EPYC Zen 3) at head dim 64, the same at 128;
  // 32 was 5 % slower than 64. On AVX-512 (Intel Xeon) up to 2 % faster; not measured on AMD's.
  static constexpr int64_t kKeyTile = kMaxKeyTile;
  static constexpr DataType kDataType = DataType::kFloat32;
  static constexpr int64_t kTerms = 1;
  static constexpr bool kRoundsWeights = false;
  using Exact = FloatProduct;  // treats no product as 0

  static HWY_INLINE LaneVector MulAdd(LaneVector a, LaneVector b, LaneVector sum) {
    return hn::MulAdd(a, b, sum);
  }
};

// The two numbers of a pair, in float32.
HWY_INLINE LaneVector LowerOf(LaneVector pair) {
  const hn::RebindToUnsigned<LaneTag> u;
  return hn::BitCast(LaneTag(), hn::ShiftLeft<16>(hn::BitCast(u, pair)));
}
HWY_INLINE LaneVector UpperOf(LaneVector pair) {
  const hn::RebindToUnsigned<LaneTag> u;
  return hn::BitCast(LaneTag(), hn::And(hn::BitCast(u, pair), hn::Set(u, 0xffff0000u)));
}

// bfloat16 without conversion: pairs of neighbouring dims for scores, of neighbouring keys for
// outputs. The first is in the lower half. Terms are exact, sums float32, weights rounded to
// bfloat16.
struct PairProduct : LaneLayout {
  static constexpr DataType kDataType = DataType::kBFloat16;
  static constexpr int64_t kTerms = 2;
  static constexpr bool kRoundsWeights = true;

  static HWY_INLINE LaneVector AddPair(LaneVector pair, LaneVector sum) {
    return hn::Add(sum, hn::Add(LowerOf(pair), UpperOf(pair)));
  }
};

// Nearest bfloat16 of numbers from 0 on, ties away from 0.
HWY_INLINE LaneVector BFloat16Pair(LaneVector first, LaneVector second) {
  const LaneTag d;
  const hn::RebindToUnsigned<LaneTag> u;
  const auto half = hn::Set(u, 0x8000u);
  const auto lower = hn::ShiftRight<16>(hn::Add(hn::BitCast(u, first), half));
  const auto upper = hn::Add(hn::BitCast(u, second), half);
  return hn::BitCast(d, hn::OrAnd(lower, upper, hn::Set(u, 0xffff0000u)));
}

// AVX512_BF16's order: the upper halves first.
struct EmulatedPairProduct : PairProduct {
  using Exact = EmulatedPairProduct;

  static HWY_INLINE LaneVector MulAdd(LaneVector a, LaneVector b, LaneVector sum) {
    return hn::MulAdd(LowerOf(a), LowerOf(b), hn::MulAdd(UpperOf(a), UpperOf(b), sum));
  }

  static HWY_INLINE LaneVector AddPair(LaneVector pair, LaneVector sum) {
    return hn::Add(LowerOf(pair), hn::Add(UpperOf(pair), sum));
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
inline constexpr bool kHasPairInstruction = true;

// AVX512_BF16's instruction, which treats subnormal numbers as 0. Assembly, because no Highway
// target includes the extension, and functions compiled without it cannot inline its intrinsic.
struct InstructionPairProduct : PairProduct {
  using Exact = EmulatedPairProduct;

  static HWY_INLINE LaneVector MulAdd(LaneVector a, LaneVector b, LaneVector sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }

  static HWY_INLINE LaneVector AddPair(LaneVector pair, LaneVector sum) {
    const auto one = hn::Set(LaneTag(), 1.0f);
    return MulAdd(pair, BFloat16Pair(one, one), sum);
  }
};
#else
inline constexpr bool kHasPairInstruction = false;
using InstructionPairProduct = EmulatedPairProduct;
#endif

// Rows of 8 dims of a lane product's packed values. Two are padding: columns of dims a power of two
// apart would share a set of the first-level cache.
template <typename Product>
inline constexpr int64_t kValueRows = Product::kKeyTile / Product::kTerms + 2;

// Elements of a packed row of a query or key.
template <typename Product>
int64_t RowElements(int64_t head_dim) {
  constexpr int64_t kStep = Product::kTerms * Product::kRowElements;
  return hwy::DivCeil(head_dim, kStep) * Product::kRowElements;
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_PRODUCT_INL_H_
