#include "tests/unit/device/strided_array.h"

#include <cmath>
#include <limits>

#include "engine/spec/numbers.h"

namespace hilbert_ring {

StridedArray::StridedArray(DataType dtype, const Shape& shape, std::mt19937_64& random,
                           int64_t gap_unit)
    : dtype_(dtype), shape_(shape) {
  const auto gap = [&] {
    const auto elements = static_cast<int64_t>(random() % 3 == 0 ? random() % 40 : 0);
    return elements / gap_unit * gap_unit;
  };
  if (random() % 4 == 0) {  // [heads, rows]: the head stride is the greater one
    row_stride_ = shape.dim + gap();
    head_stride_ = shape.rows * row_stride_ + gap();
    batch_stride_ = shape.heads * head_stride_ + gap();
  } else {
    const int64_t dilation = random() % 3 == 0 ? 1 + random() % 4 : 1;
    head_stride_ = shape.dim + gap();
    row_stride_ = (shape.heads * head_stride_ + gap()) * dilation;
    batch_stride_ = shape.rows * row_stride_ + gap();
  }
  elements_ = shape.batch * batch_stride_ + 1;
  bytes_.resize(elements_ * ElementBytes(dtype));
  for (int64_t i = 0; i < elements_; ++i) {
    StoreElement(dtype_, bytes_.data(), i, std::numeric_limits<float>::quiet_NaN());
  }
}

int64_t StridedArray::Index(int64_t b, int64_t i, int64_t h, int64_t x) const {
  return b * batch_stride_ + i * row_stride_ + h * head_stride_ + x;
}

double StridedArray::Get(int64_t b, int64_t i, int64_t h, int64_t x) const {
  return LoadElement(dtype_, bytes_.data(), Index(b, i, h, x));
}

void StridedArray::Set(int64_t b, int64_t i, int64_t h, int64_t x, float value) {
  StoreElement(dtype_, bytes_.data(), Index(b, i, h, x), value);
}

void StridedArray::FillNormal(float deviation, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, deviation);
  for (int64_t b = 0; b < shape_.batch; ++b)
    for (int64_t i = 0; i < shape_.rows; ++i)
      for (int64_t h = 0; h < shape_.heads; ++h)
        for (int64_t x = 0; x < shape_.dim; ++x) Set(b, i, h, x, normal(random));
}

void StridedArray::Fill(float value) {
  for (int64_t b = 0; b < shape_.batch; ++b)
    for (int64_t i = 0; i < shape_.rows; ++i)
      for (int64_t h = 0; h < shape_.heads; ++h)
        for (int64_t x = 0; x < shape_.dim; ++x) Set(b, i, h, x, value);
}

ConstView StridedArray::View() const { return ViewFrom(0); }

StateView StridedArray::StateWith(StridedArray& sum) {
  return {.max = Lse().data,
          .sum = sum.Lse().data,
          .batch_stride = batch_stride_,
          .row_stride = row_stride_,
          .head_stride = head_stride_};
}

ConstView StridedArray::ViewFrom(int64_t row) const {
  return {bytes_.data() + row * row_stride_ * ElementBytes(dtype_), batch_stride_, row_stride_,
          head_stride_};
}

MutableView StridedArray::View() {
  return {bytes_.data(), batch_stride_, row_stride_, head_stride_};
}

LseView StridedArray::Lse() {
  return {reinterpret_cast<float*>(bytes_.data()), batch_stride_, row_stride_, head_stride_};
}

bool StridedArray::GapsAreUntouched() const {
  std::vector<bool> element(elements_);
  for (int64_t b = 0; b < shape_.batch; ++b)
    for (int64_t i = 0; i < shape_.rows; ++i)
      for (int64_t h = 0; h < shape_.heads; ++h)
        for (int64_t x = 0; x < shape_.dim; ++x) element[Index(b, i, h, x)] = true;
  for (int64_t i = 0; i < elements_; ++i) {
    if (!element[i] && !std::isnan(LoadElement(dtype_, bytes_.data(), i))) return false;
  }
  return true;
}

}  // namespace hilbert_ring
