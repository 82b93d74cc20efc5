// Rows of 16-bit and 32-bit data to float32 and back.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_ROWS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_ROWS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/device/cpu/lane_end.h"
#include "engine/spec/numbers.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Dims are multiples of 8, so rows are whole vectors of these.
using RowTag = hn::CappedTag<float, 8>;
using RowBits = hn::Repartition<uint32_t, RowTag>;
using RowHalfBits = hn::Rebind<uint16_t, RowTag>;

HWY_INLINE hn::Vec<RowTag> LoadVector(const float* from) { return hn::LoadU(RowTag(), from); }

HWY_INLINE hn::Vec<RowTag> LoadBFloat16(const uint16_t* from) {
  const auto bits = hn::PromoteTo(RowBits(), hn::LoadU(RowHalfBits(), from));
  return hn::BitCast(RowTag(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE hn::Vec<RowTag> LoadFloat16(const uint16_t* from) {
  const RowBits u;
  const auto half = hn::PromoteTo(u, hn::LoadU(RowHalfBits(), from));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(u, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(u, 0x7fffu)));
  // A float32 with float16's exponent, even a subnormal one, is 2^112 too small.
  const auto finite =
      hn::BitCast(u, hn::Mul(hn::BitCast(RowTag(), magnitude), hn::Set(RowTag(), 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(u, 0x7f800000u));
  const auto is_special = hn::Gt(hn::BitCast(hn::Repartition<int32_t, RowTag>(), magnitude),
                                 hn::Set(hn::Repartition<int32_t, RowTag>(), 0x0f7fffff));
  const auto value = hn::IfThenElse(hn::RebindMask(u, is_special), special, finite);
  return hn::BitCast(RowTag(), hn::Or(value, sign));
}

HWY_INLINE hn::Vec<RowHalfBits> BFloat16Bits(hn::Vec<RowTag> value) {
  const RowBits u;
  const auto bits = hn::BitCast(u, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(u, 0x400000u));
  const auto is_number = hn::RebindMask(u, hn::Eq(value, value));
  const auto chosen = hn::ShiftRight<16>(hn::IfThenElse(is_number, rounded, quiet));
  return hn::DemoteTo(RowHalfBits(), hn::BitCast(hn::Repartition<int32_t, RowTag>(), chosen));
}

// Works as FloatToFloat16 in numbers.cc, without branches.
HWY_INLINE hn::Vec<RowHalfBits> Float16Bits(hn::Vec<RowTag> value) {
  const RowBits u;
  const hn::Repartition<int32_t, RowTag> i;
  const auto bits = hn::BitCast(u, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000u));
  const auto magnitude = hn::And(bits, hn::Set(u, 0x7fffffffu));
  const auto signed_magnitude = hn::BitCast(i, magnitude);
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u, 1u));
  const auto normal = hn::ShiftRight<13>(
      hn::Add(hn::Add(magnitude, odd), hn::Set(u, 0xfffu - ((127u - 15u) << 23))));
  const auto small =
      hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(RowTag(), magnitude), hn::Set(RowTag(), 0.5f))),
              hn::Set(u, 0x3f000000u));
  const auto is_nan = hn::RebindMask(u, hn::Gt(signed_magnitude, hn::Set(i, 0x7f800000)));
  const auto special = hn::IfThenElse(is_nan, hn::Set(u, 0x7e00u), hn::Set(u, 0x7c00u));
  const auto is_small = hn::RebindMask(u, hn::Lt(signed_magnitude, hn::Set(i, 0x38800000)));
  const auto is_large = hn::RebindMask(u, hn::Gt(signed_magnitude, hn::Set(i, 0x477fffff)));
  const auto half = hn::IfThenElse(is_large, special, hn::IfThenElse(is_small, small, normal));
  return hn::DemoteTo(RowHalfBits(), hn::BitCast(i, hn::Or(half, sign)));
}

// Loads `count` elements from `index` on, 8 by 8, each 8 to the next multiple of `stride` floats.
HWY_INLINE void LoadRow(DataType dtype, const void* data, int64_t index, int64_t count,
                        int64_t stride, float* HWY_RESTRICT to) {
  const RowTag d;
  const int64_t step = hn::Lanes(d);
  const auto load = [&](const auto* from, auto&& widen) HWY_ATTR {
    for (int64_t x = 0; x < count; x += 8, from += 8, to += stride) {
      for (int64_t i = 0; i < 8; i += step) hn::StoreU(widen(from + i), d, to + i);
    }
  };
  if (dtype == DataType::kFloat32) {
    load(static_cast<const float*>(data) + index,
         [](const float* from) HWY_ATTR { return LoadVector(from); });
  } else if (dtype == DataType::kBFloat16) {
    load(static_cast<const uint16_t*>(data) + index,
         [](const uint16_t* from) HWY_ATTR { return LoadBFloat16(from); });
  } else {
    load(static_cast<const uint16_t*>(data) + index,
         [](const uint16_t* from) HWY_ATTR { return LoadFloat16(from); });
  }
}

// Pairs `count` elements, a multiple of 8, of two rows of bfloat16: each 8 pairs (first[x],
// second[x]) to the next multiple of `stride` elements.
HWY_INLINE void PairRows(const uint16_t* HWY_RESTRICT first, const uint16_t* HWY_RESTRICT second,
                         int64_t count, int64_t stride, float* HWY_RESTRICT to) {
  const RowTag d;
  const RowBits u;
  const RowHalfBits half;
  const int64_t step = hn::Lanes(d);
  for (int64_t x = 0; x < count; x += 8, to += stride) {
    for (int64_t i = 0; i < 8; i += step) {
      const auto lower = hn::PromoteTo(u, hn::LoadU(half, first + x + i));
      const auto upper = hn::PromoteTo(u, hn::LoadU(half, second + x + i));
      hn::StoreU(hn::BitCast(d, hn::Or(lower, hn::ShiftLeft<16>(upper))), d, to + i);
    }
  }
}

// LeastNonzero of zeros alone.
inline constexpr uint16_t kNoBFloat16 = 0x7fff;

// Least magnitudes of nonzero bfloat16 in the places of vectors, less 1: 0 becomes the greatest.
template <class D>
HWY_INLINE hn::Vec<D> SmallerMagnitudes(D d, hn::Vec<D> bits, hn::Vec<D> least) {
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffu));
  return hn::Min(least, hn::Sub(magnitude, hn::Set(d, 1u)));
}

// Bits of the least of them, or kNoBFloat16.
template <class D>
HWY_INLINE uint16_t LeastMagnitude(D d, hn::Vec<D> least) {
  alignas(64) uint16_t lanes[hn::MaxLanes(D())];
  hn::Store(least, d, lanes);
  const uint16_t found = *std::min_element(lanes, lanes + hn::Lanes(d));
  return found >= kNoBFloat16 ? kNoBFloat16 : static_cast<uint16_t>(found + 1);
}

// Bits, without the sign, of the least nonzero magnitude of `count` bfloat16, a multiple of 8.
HWY_INLINE uint16_t LeastNonzero(const uint16_t* from, int64_t count) {
  const hn::CappedTag<uint16_t, 8> d;
  auto least = hn::Set(d, 0xffffu);
  const int64_t step = hn::Lanes(d);
  for (int64_t x = 0; x < count; x += step) {
    least = SmallerMagnitudes(d, hn::LoadU(d, from + x), least);
  }
  return LeastMagnitude(d, least);
}

// Returns whether all products of nonzero bfloat16, given the least magnitudes of both factors, and
// sums of them, are normal numbers: an instruction that treats others as 0 is then exact.
inline bool ProductsAreNormal(uint16_t least, uint16_t other) {
  constexpr int kBias = 127, kLeastExponent = -126;
  constexpr int kFractionBits = 2 * 7;  // of a product: sums are multiples of its last bit
  const int a = least >> 7, b = other >> 7;
  return a > 0 && b > 0 && a + b - 2 * kBias - kFractionBits >= kLeastExponent;
}

// CpuKernels::store_row. It reads each vector before it writes it, so a row may narrow in place.
inline void StoreRow(const float* from, int64_t count, float scale, DataType dtype, void* to) {
  const RowTag d;
  const int64_t step = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  int64_t x = 0;
  if (dtype == DataType::kFloat32) {
    float* floats = static_cast<float*>(to);
    for (; x + step <= count; x += step) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + x), factor), d, floats + x);
    }
  } else {
    uint16_t* bits = static_cast<uint16_t*>(to);
    for (; x + step <= count; x += step) {
      const auto value = hn::Mul(hn::LoadU(d, from + x), factor);
      const auto half = dtype == DataType::kBFloat16 ? BFloat16Bits(value) : Float16Bits(value);
      hn::StoreU(half, RowHalfBits(), bits + x);
    }
  }
  for (; x < count; ++x) StoreElement(dtype, to, x, from[x] * scale);
}

// out[x] = out[x] * shares.before + values[x] * shares.now for `count` elements, in float64: each
// is rounded once. Averages of finite numbers stay within float32.
inline void MergeRow(const MergeShares& shares, const float* HWY_RESTRICT values, int64_t count,
                     float* HWY_RESTRICT out) {
  int64_t x = 0;
  // The portable targets' conversions turn infinities into the greatest finite numbers.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::CappedTag<double, 8> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const int64_t step = hn::Lanes(wide);
  const auto before = hn::Set(wide, shares.before);
  const auto now = hn::Set(wide, shares.now);
  const auto finite = hn::Set(wide, double{std::numeric_limits<float>::max()});
  for (; x + step <= count; x += step) {
    const auto old = hn::PromoteTo(wide, hn::LoadU(narrow, out + x));
    const auto value = hn::PromoteTo(wide, hn::LoadU(narrow, values + x));
    const auto merged = hn::MulAdd(value, now, hn::Mul(old, before));
    const auto most = hn::Max(finite, hn::Max(hn::Abs(old), hn::Abs(value)));
    // NaN is neither.
    const auto above = hn::Gt(merged, most);
    const auto below = hn::Lt(merged, hn::Neg(most));
    const auto within = hn::IfThenElse(above, most, hn::IfThenElse(below, hn::Neg(most), merged));
    hn::StoreU(hn::DemoteTo(narrow, within), narrow, out + x);
  }
#endif
  for (; x < count; ++x) {
    const double merged = out[x] * shares.before + values[x] * shares.now;
    out[x] = static_cast<float>(NotBeyond(std::max(std::abs(out[x]), std::abs(values[x])), merged));
  }
}

// to[x][i] = from[i][x] for rows x columns elements, multiples of 4 if vectors are longer than 1.
inline void Transpose(const float* HWY_RESTRICT from, int64_t rows, int64_t columns,
                      float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t x = 0; x < columns; ++x) to[x * rows + i] = from[i * columns + x];
  }
#else
  const hn::CappedTag<float, 4> d;
  for (int64_t i = 0; i < rows; i += 4) {
    for (int64_t x = 0; x < columns; x += 4) {
      const float* at = from + i * columns + x;
      const auto row0 = hn::LoadU(d, at);
      const auto row1 = hn::LoadU(d, at + columns);
      const auto row2 = hn::LoadU(d, at + 2 * columns);
      const auto row3 = hn::LoadU(d, at + 3 * columns);
      const auto low01 = hn::InterleaveLower(d, row0, row1);
      const auto low23 = hn::InterleaveLower(d, row2, row3);
      const auto high01 = hn::InterleaveUpper(d, row0, row1);
      const auto high23 = hn::InterleaveUpper(d, row2, row3);
      float* there = to + x * rows + i;
      hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, there);
      hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, there + rows);
      hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, there + 2 * rows);
      hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, there + 3 * rows);
    }
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_ROWS_INL_H_
