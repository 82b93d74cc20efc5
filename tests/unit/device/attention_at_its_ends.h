// What tests of Device::Attend at the ends of float32 share: shapes for each of a GPU's kernels,
// and a look at every row beside what float64 makes of it.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/device/attention_case.h"
#include "tests/unit/device/devices_under_test.h"

namespace hilbert_ring {

inline constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

class AttentionAtItsEnds : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> device_ = DeviceFor(GetParam(), 2);

  // Computes the case over `parts` runs of keys, which kMerge takes as one.
  void Attend(AttentionCase& c, int64_t parts = 1) {
    for (int64_t p = 0; p < parts; ++p) {
      const AttentionTask task =
          c.Task(c.shape.key_rows * p / parts, c.shape.key_rows * (p + 1) / parts);
      ASSERT_TRUE(device_->Attend({&task, 1}, {}).ok());
    }
  }
};

template <typename Check>
void ForRows(const AttentionCase& c, const Check& check) {
  for (int64_t b = 0; b < c.shape.batch; ++b)
    for (int64_t i = 0; i < c.shape.query_rows; ++i)
      for (int64_t h = 0; h < c.shape.heads; ++h) {
        if (testing::Test::HasFailure()) return;
        SCOPED_TRACE(absl::StrCat("batch ", b, " row ", i, " head ", h));
        check(b, i, h, c.Define(b, i, h));
      }
}

// What rounding of weights and of results may do to one, relative to its terms.
inline double Rounding(const CaseShape& s) {
  const auto of = [](DataType type) {
    return type == DataType::kFloat32 ? 0x1p-20 : type == DataType::kBFloat16 ? 0x1p-7 : 0x1p-10;
  };
  return of(s.dtype) + of(s.out_dtype);
}

// A shape for each of a GPU's kernels, of several tiles.
inline CaseShape ShapeOf(int number, DataType dtype) {
  constexpr int64_t kDims[] = {16, 64, 104, 128, 256};
  constexpr int64_t kRows[] = {20, 75, 150};
  CaseShape s;
  s.dtype = dtype;
  s.head_dim = kDims[number % 5];
  s.value_dim = kDims[(number + number / 5) % 5];
  s.heads = 1 + number % 2;
  s.query_rows = kRows[number % 3];
  s.key_rows = 90 + 40 * (number % 4);
  s.mask = static_cast<Mask>(number % 3);
  s.diagonal_shift = s.key_rows - s.query_rows - 3;
  s.scale = (number % 4 == 3 ? -1.0f : 1.0f) / std::sqrt(static_cast<float>(s.head_dim));
  s.gap_unit = number % 2 == 0 ? 8 : 1;
  return s;
}

}  // namespace hilbert_ring
