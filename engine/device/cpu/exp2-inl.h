// Powers of two of a vector of lanes: weights of softmax.
//
//   const Exp2 weight_of(unit.log2, halvings);      // unit: ScoreUnit
//   weights = weight_of(below);                     // below: maximum - score, at least 0

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_EXP2_INL_H_
#undef HILBERT_RING_DEVICE_CPU_EXP2_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_EXP2_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "engine/device/cpu/product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// x if it is at most `most` or NaN, else `most`.
HWY_INLINE LaneVector AtMost(LaneVector x, LaneVector most) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(most, x);  // MINPS returns its second operand if one is NaN
#else
  return hn::IfThenElse(hn::Lt(most, x), most, x);
#endif
}

// The exponent -below * log2 is split into the nearest integer n and the rest r. A polynomial gives
// 2^r. Its product with 2^n is exactly 0 for -infinity, and NaN for NaN.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// The exponent of `below` is below * factor.
struct ExponentUnit {
  explicit HWY_INLINE ExponentUnit(float log2) : factor(hn::Set(LaneTag(), -log2)) {}
  LaneVector factor;
};

struct PowerOfTwo {
  PowerOfTwo() = default;
  HWY_INLINE PowerOfTwo(const ExponentUnit& unit, LaneVector below) {
    const auto x = hn::Mul(below, unit.factor);
    r = {_mm512_reduce_ps(x.raw, 0)};  // 0 for infinity
    n = hn::Sub(x, r);
  }
  // Subnormal results become 0, as in the other version: products are slow with them.
  HWY_INLINE LaneVector Times(LaneVector p) const {
    const __mmask16 kept = _mm512_cmp_ps_mask(n.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return {_mm512_maskz_scalef_ps(kept, p.raw, n.raw)};
  }

  LaneVector r;
  LaneVector n;
};
#else
// The exponent of `below` is below * factor. It stops at -127, because 2^n has the bits of 0 there.
struct ExponentUnit {
  explicit HWY_INLINE ExponentUnit(float log2)
      : factor(hn::Set(LaneTag(), -log2)),
        most(hn::Set(LaneTag(), 127.0f / log2)),
        shifter(hn::Set(LaneTag(), 12583039.0f)) {}
  LaneVector factor;
  LaneVector most;  // limit of below; finite, because ScoreUnit's log2 is at least 2^-118
  // 1.5 * 2^23 + 127. Its sum with an exponent is rounded to n, and has the biased exponent of 2^n
  // in its lowest bits.
  LaneVector shifter;
};

struct PowerOfTwo {
  PowerOfTwo() = default;
  HWY_INLINE PowerOfTwo(const ExponentUnit& unit, LaneVector below) {
    const LaneTag d;
    const hn::RebindToSigned<LaneTag> i;
    below = AtMost(below, unit.most);
    const auto shifted = hn::MulAdd(below, unit.factor, unit.shifter);
    r = hn::MulSub(below, unit.factor, hn::Sub(shifted, unit.shifter));
    power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(i, shifted)));
  }
  // A product keeps NaN and 0. Adding n to the exponent bits of p would not.
  HWY_INLINE LaneVector Times(LaneVector p) const { return hn::Mul(p, power); }

  LaneVector r;
  LaneVector power;
};
#endif

// Computes 2^(-below * log2) / 2^halvings, which is about 2 at most. The result is exact at 0.
// Results below float32's normal numbers may be 0. The error is under 1 ulp beside that of the
// rounded exponent.
class Exp2 {
 public:
  HWY_INLINE Exp2(float log2, int64_t halvings) : unit_(log2) {
    // Degree 6, 1 at 0, least relative error (3e-9) over |r| <= 1/2, by Remez' algorithm.
    constexpr float kSeries[] = {1.0f,
                                 6.9314718246e-1f,
                                 2.4022647738e-1f,
                                 5.5503595620e-2f,
                                 9.6185002476e-3f,
                                 1.3390975073e-3f,
                                 1.5328802692e-4f};
    const float one = std::bit_cast<float>(static_cast<uint32_t>(127 - halvings) << 23);
    for (int i = 0; i < 7; ++i) series_[i] = hn::Set(LaneTag(), kSeries[i] * one);
  }

  HWY_INLINE LaneVector operator()(LaneVector below) const {
    All<1>(&below);
    return below;
  }

  // Replaces kCount vectors by their results, each step for all vectors. Steps of a vector wait for
  // each other, and a processor looks only a few instructions ahead.
  template <int kCount>
  HWY_INLINE void All(LaneVector* below) const {
    PowerOfTwo power[kCount];
    LaneVector p[kCount];
#pragma GCC unroll 16
    for (int a = 0; a < kCount; ++a) {
      power[a] = PowerOfTwo(unit_, below[a]);
      p[a] = hn::MulAdd(series_[6], power[a].r, series_[5]);
    }
#pragma GCC unroll 6
    for (int i = 4; i >= 0; --i) {
#pragma GCC unroll 16
      for (int a = 0; a < kCount; ++a) p[a] = hn::MulAdd(p[a], power[a].r, series_[i]);
    }
#pragma GCC unroll 16
    for (int a = 0; a < kCount; ++a) below[a] = power[a].Times(p[a]);
  }

 private:
  ExponentUnit unit_;
  LaneVector series_[7];
};

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_EXP2_INL_H_
