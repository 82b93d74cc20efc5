#include "engine/model/row_kernels.h"

#include <cmath>

#include "engine/spec/numbers.h"

// The same targets as the attention's kernels, whose conversions are used here.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/model/row_kernels.cc"
// foreach_target.h compiles everything after it once per target, so it comes first.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/device/cpu/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

namespace {  // because other files have kernels of the same names

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

// Sums value(x) over a row, in four vector sums and one scalar sum.
template <typename OfVector, typename OfOne>
HWY_INLINE float SumOver(int64_t dim, const OfVector& of_vector, const OfOne& of_one) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t x = 0;
  for (; x + 4 * lanes <= dim; x += 4 * lanes) {
    sum0 = hn::Add(sum0, of_vector(x));
    sum1 = hn::Add(sum1, of_vector(x + lanes));
    sum2 = hn::Add(sum2, of_vector(x + 2 * lanes));
    sum3 = hn::Add(sum3, of_vector(x + 3 * lanes));
  }
  for (; x + lanes <= dim; x += lanes) sum0 = hn::Add(sum0, of_vector(x));
  float rest = 0;
  for (; x < dim; ++x) rest += of_one(x);
  return rest + hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// Norms a row whose squares overflow float32.
void NormOfFloat64(const float* from, const NormView& norm, int64_t dim, float* to) {
  const auto count = static_cast<double>(dim);
  double mean = 0, variance = 0;
  for (int64_t x = 0; x < dim; ++x) mean += from[x] / count;
  for (int64_t x = 0; x < dim; ++x) variance += (from[x] - mean) * (from[x] - mean) / count;
  const double scale = 1.0 / std::sqrt(variance + norm.epsilon);
  for (int64_t x = 0; x < dim; ++x) {
    to[x] = static_cast<float>((from[x] - mean) * scale * norm.weight[x] + norm.bias[x]);
  }
}

void Norm(const float* from, const NormView& norm, int64_t dim, float* to) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float count = static_cast<float>(dim);
  const float mean = SumOver(
                         dim, [&](int64_t x) HWY_ATTR { return hn::LoadU(d, from + x); },
                         [&](int64_t x) HWY_ATTR { return from[x]; }) /
                     count;
  const Vector means = hn::Set(d, mean);
  const float variance =
      SumOver(
          dim,
          [&](int64_t x) HWY_ATTR {
            const Vector off = hn::Sub(hn::LoadU(d, from + x), means);
            return hn::Mul(off, off);
          },
          [&](int64_t x) HWY_ATTR { return (from[x] - mean) * (from[x] - mean); }) /
      count;
  if (!std::isfinite(variance)) return NormOfFloat64(from, norm, dim, to);
  const float scale = 1.0f / std::sqrt(variance + norm.epsilon);
  const Vector scales = hn::Set(d, scale);
  int64_t x = 0;
  for (; x + lanes <= dim; x += lanes) {
    const Vector off = hn::Mul(hn::Sub(hn::LoadU(d, from + x), means), scales);
    hn::StoreU(hn::MulAdd(off, hn::LoadU(d, norm.weight + x), hn::LoadU(d, norm.bias + x)), d,
               to + x);
  }
  for (; x < dim; ++x) to[x] = (from[x] - mean) * scale * norm.weight[x] + norm.bias[x];
}

// erf(z) = z P(z^2) / Q(z^2) within 2.4e-8 on [-4, 4], beyond which it is 1 in float32: fitted to
// the C library's erf by least squares, weighted to level the error.
inline constexpr float kErfP[] = {1.128379039e+00f, 1.949017372e-01f, 5.328635517e-02f,
                                  3.944655929e-03f, 2.864957263e-04f, 1.982530367e-06f};
inline constexpr float kErfQ[] = {1.000000000e+00f, 5.060588745e-01f, 1.159164734e-01f,
                                  1.532712805e-02f, 1.201610525e-03f, 3.747934705e-05f};
inline constexpr float kErfEnd = 4.0f;

template <typename D>
HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D> t, const float (&terms)[6]) {
  auto value = hn::Set(d, terms[5]);
  for (int i = 4; i >= 0; --i) value = hn::MulAdd(value, t, hn::Set(d, terms[i]));
  return value;
}

template <typename D>
HWY_INLINE void GeluOf(D d, float* at) {
  const auto value = hn::LoadU(d, at);
  const auto z = hn::Mul(value, hn::Set(d, 0.70710678f));
  const auto t = hn::Mul(z, z);
  const auto inside = hn::Div(hn::Mul(z, Polynomial(d, t, kErfP)), Polynomial(d, t, kErfQ));
  const auto one = hn::Set(d, 1.0f);
  // A NaN is not greater than the end, so it stays a NaN.
  const auto erf =
      hn::IfThenElse(hn::Gt(hn::Abs(z), hn::Set(d, kErfEnd)), hn::CopySign(one, z), inside);
  hn::StoreU(hn::Mul(hn::Mul(hn::Set(d, 0.5f), value), hn::Add(one, erf)), d, at);
}

void Gelu(float* row, int64_t dim) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t x = 0;
  for (; x + lanes <= dim; x += lanes) GeluOf(d, row + x);
  for (; x < dim; ++x) GeluOf(hn::CappedTag<float, 1>(), row + x);
}

void Add(const float* add, float* row, int64_t dim) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t x = 0;
  for (; x + lanes <= dim; x += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, row + x), hn::LoadU(d, add + x)), d, row + x);
  }
  for (; x < dim; ++x) row[x] += add[x];
}

void Widen(DataType dtype, const void* from, int64_t dim, float* to) {
  const int64_t whole = dim / 8 * 8;
  LoadRow(dtype, from, 0, whole, 8, to);
  for (int64_t x = whole; x < dim; ++x) to[x] = LoadElement(dtype, from, x);
}

void Narrow(const float* from, int64_t dim, DataType dtype, void* to) {
  StoreRow(from, dim, 1.0f, dtype, to);
}

RowKernels Kernels() {
  return {.norm = &Norm, .gelu = &Gelu, .add = &Add, .widen = &Widen, .narrow = &Narrow};
}

}  // namespace

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hilbert_ring {
namespace {

HWY_EXPORT(Kernels);

}  // namespace

const RowKernels& BestRowKernels() {
  static const RowKernels kernels = HWY_DYNAMIC_DISPATCH(Kernels)();
  return kernels;
}

const RowKernels& BaselineRowKernels() {
  static const RowKernels kernels = HWY_STATIC_DISPATCH(Kernels)();
  return kernels;
}

}  // namespace hilbert_ring
#endif  // HWY_ONCE
