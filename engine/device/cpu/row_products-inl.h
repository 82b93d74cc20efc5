// The two matrix products of few lanes: vectors run over dims.
//
// Terms define how rows are read. A vector pair holds 2 * Lanes dims of values and of sums, in an
// order of the terms' own.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_ROW_PRODUCTS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_ROW_PRODUCTS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_ROW_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct VectorPair {
  LaneVector first, second;
};

HWY_INLINE int64_t PairDims() { return 2 * hn::Lanes(LaneTag()); }
inline int64_t RowFloats(int64_t dim) { return hwy::RoundUpTo(dim, PairDims()); }

// Elements from `count` on are 0; count: > 0, may be more than the vectors have. Vectors of 4 need
// no masks, because dims are multiples of 8.
HWY_INLINE VectorPair LoadDims(const float* from, int64_t count) {
  const LaneTag d;
  const int64_t n = hn::Lanes(d);
  if (HWY_LIKELY(count >= 2 * n)) return {hn::LoadU(d, from), hn::LoadU(d, from + n)};
  const auto first = hn::MaskedLoad(hn::FirstN(d, std::min(count, n)), d, from);
  if (count <= n) return {first, hn::Zero(d)};
  return {first, hn::MaskedLoad(hn::FirstN(d, count - n), d, from + n)};
}
HWY_INLINE LaneVector LoadDims(const uint16_t* from, int64_t count) {
  const LaneTag d;
  const auto* pairs = reinterpret_cast<const float*>(from);
  if (HWY_LIKELY(count >= PairDims())) return hn::LoadU(d, pairs);
  return hn::MaskedLoad(hn::FirstN(d, count / 2), d, pairs);
}

// Terms of float32. Rows of bfloat16 are widened to pairs of even and odd dims.
template <typename T>
struct FloatTerms {
  using Element = T;
  using Product = FloatProduct;
  using Key = VectorPair;
  static constexpr int64_t kKeys = 1;  // of a term of sums
  static constexpr int kKeyVectors = 2;

  static HWY_INLINE VectorPair Wide(VectorPair dims) { return dims; }
  static HWY_INLINE VectorPair Wide(LaneVector both) { return {LowerOf(both), UpperOf(both)}; }

  static HWY_INLINE Key LoadKey(const T* from, int64_t count) {
    return Wide(LoadDims(from, count));
  }
  static HWY_INLINE void StoreQuery(const T* from, int64_t count, float sign, float* to) {
    const LaneTag d;
    const auto [first, second] = LoadKey(from, count);
    hn::Store(hn::Mul(first, hn::Set(d, sign)), d, to);
    hn::Store(hn::Mul(second, hn::Set(d, sign)), d, to + hn::Lanes(d));
  }
  static HWY_INLINE Key LoadQuery(const float* from) {
    return {hn::Load(LaneTag(), from), hn::Load(LaneTag(), from + hn::Lanes(LaneTag()))};
  }
  static HWY_INLINE LaneVector AddProduct(const Key& key, const Key& query, LaneVector sum) {
    return hn::MulAdd(key.second, query.second, hn::MulAdd(key.first, query.first, sum));
  }

  // No product is treated as 0.
  struct Least {};
  static HWY_INLINE Least NoneYet() { return {}; }
  static HWY_INLINE Least Smaller(const Key&, Least least) { return least; }
  static uint16_t MagnitudeOf(Least) { return kNoBFloat16; }

  static HWY_INLINE VectorPair LoadValues(const T* from, const T*, int64_t count) {
    return LoadKey(from, count);
  }
  // The place of dim x of a pair in its vectors.
  static int64_t PlaceOf(int64_t x) {
    return std::is_same_v<T, float> ? x : x / 2 + x % 2 * (PairDims() / 2);
  }
};

// Pairs of bfloat16: of neighbouring dims for scores, of neighbouring keys for sums. Two keys' rows
// interleave within blocks of 8 dims.
template <typename PairProduct>
struct PairTerms {
  using Element = uint16_t;
  using Product = PairProduct;
  using Key = LaneVector;
  static constexpr int64_t kKeys = 2;
  static constexpr int kKeyVectors = 1;

  static HWY_INLINE Key LoadKey(const uint16_t* from, int64_t count) {
    return LoadDims(from, count);
  }
  static HWY_INLINE void StoreQuery(const uint16_t* from, int64_t count, float sign, float* to) {
    const LaneTag d;
    const hn::RebindToUnsigned<LaneTag> u;
    const auto both = LoadDims(from, count);
    const auto lower = hn::BitCast(u, hn::Mul(LowerOf(both), hn::Set(d, sign)));
    const auto upper = hn::BitCast(u, hn::Mul(UpperOf(both), hn::Set(d, sign)));
    const auto pair = hn::OrAnd(hn::ShiftRight<16>(lower), upper, hn::Set(u, 0xffff0000u));
    hn::Store(hn::BitCast(d, pair), d, to);
  }
  static HWY_INLINE Key LoadQuery(const float* from) { return hn::Load(LaneTag(), from); }
  static HWY_INLINE LaneVector AddProduct(Key key, Key query, LaneVector sum) {
    return PairProduct::MulAdd(key, query, sum);
  }

  using LeastTag = hn::Repartition<uint16_t, LaneTag>;
  using Least = hn::Vec<LeastTag>;
  static HWY_INLINE Least NoneYet() { return hn::Set(LeastTag(), 0xffffu); }
  static HWY_INLINE Least Smaller(Key key, Least least) {
    return SmallerMagnitudes(LeastTag(), hn::BitCast(LeastTag(), key), least);
  }
  static uint16_t MagnitudeOf(Least least) { return LeastMagnitude(LeastTag(), least); }

  static HWY_INLINE VectorPair LoadValues(const uint16_t* from, const uint16_t* next,
                                          int64_t count) {
    const LeastTag d;
    const auto a = hn::BitCast(d, LoadDims(from, count));
    const auto b = hn::BitCast(d, LoadDims(next, count));
    return {hn::BitCast(LaneTag(), hn::InterleaveLower(d, a, b)),
            hn::BitCast(LaneTag(), hn::InterleaveUpper(d, a, b))};
  }
  static int64_t PlaceOf(int64_t x) { return x / 8 * 4 + x % 4 + x % 8 / 4 * (PairDims() / 2); }
};

// Rows of keys or values.
template <typename T>
struct Rows {
  const T* data;
  int64_t stride;
  int64_t count;
  int64_t dim;
};

inline constexpr int kQuad = 4;  // lanes whose sums stay in registers together

// Stores the sums of equal places of a vector's blocks of 4.
template <class D>
HWY_INLINE void StoreBlockSum(D d, hn::Vec<D> v, float* to) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    StoreBlockSum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Stores the sums of the elements of four vectors.
HWY_INLINE void StoreSums(LaneVector a, LaneVector b, LaneVector c, LaneVector d, float* to) {
  const LaneTag tag;
  const hn::RepartitionToWide<LaneTag> wide;
  const auto ab = hn::Add(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b));
  const auto cd = hn::Add(hn::InterleaveLower(tag, c, d), hn::InterleaveUpper(tag, c, d));
  const auto lower = hn::InterleaveLower(wide, hn::BitCast(wide, ab), hn::BitCast(wide, cd));
  const auto upper = hn::InterleaveUpper(wide, hn::BitCast(wide, ab), hn::BitCast(wide, cd));
  StoreBlockSum(tag, hn::Add(hn::BitCast(tag, lower), hn::BitCast(tag, upper)), to);
}

// scores[key * stride + lane] of a quad's lanes and keys `first` to first + 3. next() goes with
// each vector pair of a key, whose least elements are found if kFindsLeast.
template <typename Terms, bool kFindsLeast, typename Next>
HWY_INLINE void ScoreQuad(const Rows<typename Terms::Element>& keys, int64_t first,
                          const float* HWY_RESTRICT queries, typename Terms::Least& least,
                          const Next& next, int64_t stride, float* HWY_RESTRICT scores) {
  const LaneTag d;
  const int64_t floats = RowFloats(keys.dim);
  const typename Terms::Element* rows[kQuad];
  LaneVector sums[kQuad][kQuad];
#pragma GCC unroll 4
  for (int i = 0; i < kQuad; ++i) {
    rows[i] = keys.data + std::min(first + i, keys.count - 1) * keys.stride;
#pragma GCC unroll 4
    for (int lane = 0; lane < kQuad; ++lane) sums[i][lane] = hn::Zero(d);
  }
  for (int64_t x = 0; x < keys.dim; x += PairDims()) {
    typename Terms::Key query[kQuad];
#pragma GCC unroll 4
    for (int lane = 0; lane < kQuad; ++lane) {
      query[lane] = Terms::LoadQuery(queries + lane * floats);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQuad; ++i) {
      const auto key = Terms::LoadKey(rows[i] + x, keys.dim - x);
      if constexpr (kFindsLeast) least = Terms::Smaller(key, least);
      next();
#pragma GCC unroll 4
      for (int lane = 0; lane < kQuad; ++lane) {
        sums[i][lane] = Terms::AddProduct(key, query[lane], sums[i][lane]);
      }
    }
    queries += Terms::kKeyVectors * hn::Lanes(d);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQuad; ++i) {
    if (first + i >= keys.count) break;
    StoreSums(sums[i][0], sums[i][1], sums[i][2], sums[i][3], scores + (first + i) * stride);
  }
}

// sums[lane] = sums[lane] * rescale[lane] + weights . values for kLanes lanes of a quad and kPairs
// pairs of vectors from dim x on. Products are summed apart: rounding errors grow with a tile.
// next() goes with each pair of a term. Weights of a term are `stride` apart.
template <typename Terms, int kLanes, int kPairs, typename Next>
HWY_INLINE void AddDims(const Rows<typename Terms::Element>& values, int64_t x,
                        const float* HWY_RESTRICT weights, int64_t stride,
                        const float* HWY_RESTRICT rescale, const Next& next,
                        float* HWY_RESTRICT sums) {
  const LaneTag d;
  const int64_t n = hn::Lanes(d);
  const int64_t floats = RowFloats(values.dim);
  LaneVector added[kLanes][2 * kPairs];
#pragma GCC unroll 4
  for (int lane = 0; lane < kLanes; ++lane) {
#pragma GCC unroll 4
    for (int a = 0; a < 2 * kPairs; ++a) added[lane][a] = hn::Zero(d);
  }
  const auto* row = values.data + x;
  for (int64_t j = 0; j < values.count; j += Terms::kKeys, row += Terms::kKeys * values.stride) {
    const auto* last =
        j + Terms::kKeys > values.count ? row : row + (Terms::kKeys - 1) * values.stride;
    VectorPair value[kPairs];
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
      const int64_t at = p * 2 * n;
      value[p] = Terms::LoadValues(row + at, last + at, values.dim - x - at);
      next();
    }
#pragma GCC unroll 4
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto weight = hn::Set(d, weights[lane]);
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) {
        LaneVector* to = added[lane] + 2 * p;
        to[0] = Terms::Product::MulAdd(weight, value[p].first, to[0]);
        to[1] = Terms::Product::MulAdd(weight, value[p].second, to[1]);
      }
    }
    weights += stride;
  }
#pragma GCC unroll 4
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto factor = hn::Set(d, rescale[lane]);
#pragma GCC unroll 4
    for (int a = 0; a < 2 * kPairs; ++a) {
      float* at = sums + lane * floats + x + a * n;
      hn::Store(hn::MulAdd(hn::Load(d, at), factor, added[lane][a]), d, at);
    }
  }
}

// Sums of all dims of a quad's first kLanes lanes.
template <typename Terms, int kLanes, typename Next>
HWY_INLINE void AddQuad(const Rows<typename Terms::Element>& values, const float* weights,
                        int64_t stride, const float* rescale, const Next& next, float* sums) {
  int64_t x = 0;
  for (; x + PairDims() < values.dim; x += 2 * PairDims()) {
    AddDims<Terms, kLanes, 2>(values, x, weights, stride, rescale, next, sums);
  }
  if (x < values.dim) {
    AddDims<Terms, kLanes, 1>(values, x, weights, stride, rescale, next, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_ROW_PRODUCTS_INL_H_
