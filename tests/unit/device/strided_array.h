// A [batch, rows, heads, dim] array with random strides. NaN in the gaps between its elements makes
// reads outside the elements visible in results, and writes detectable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/device/view.h"

namespace hilbert_ring {

struct Shape {
  int64_t batch = 1;
  int64_t rows = 1;
  int64_t heads = 1;
  int64_t dim = 1;
};

class StridedArray {
 public:
  StridedArray() = default;

  // Elements are NaN until they are set. Gaps are multiples of gap_unit elements.
  StridedArray(DataType dtype, const Shape& shape, std::mt19937_64& random, int64_t gap_unit = 1);

  void FillNormal(float deviation, std::mt19937_64& random);
  void Fill(float value);

  double Get(int64_t b, int64_t i, int64_t h, int64_t x) const;
  void Set(int64_t b, int64_t i, int64_t h, int64_t x, float value);

  const Shape& shape() const { return shape_; }
  ConstView View() const;
  MutableView View();
  LseView Lse();

  // This array's elements are the maxima; `sum` is a copy of it and so has equal strides.
  StateView StateWith(StridedArray& sum);

  // The rows from `row` on, as a view of the same memory.
  ConstView ViewFrom(int64_t row) const;

  bool GapsAreUntouched() const;
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  int64_t Index(int64_t b, int64_t i, int64_t h, int64_t x) const;

  DataType dtype_ = DataType::kFloat32;
  Shape shape_;
  int64_t batch_stride_ = 0, row_stride_ = 0, head_stride_ = 0;
  int64_t elements_ = 0;  // with gaps
  std::vector<std::byte> bytes_;
};

}  // namespace hilbert_ring
