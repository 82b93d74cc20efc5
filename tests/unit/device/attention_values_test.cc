// Device::Attend in shapes for each of a GPU's kernels, over values that are not finite and sums
// that overflow. Every kernel has every_value_test.cc; this one is run where kernels are emulated.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/device/attention_at_its_ends.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class AttentionValuesTest : public AttentionAtItsEnds {};
HILBERT_RING_FOR_ALL_DEVICES(AttentionValuesTest);

// As the definition says: what is not finite is where it says so and nowhere else. Counts the
// elements that are finite, and those that are not.
struct Counts {
  int64_t finite = 0, odd = 0;
};
void ExpectDefinition(const AttentionCase& c, Counts& counts) {
  ForRows(c, [&](int64_t b, int64_t i, int64_t h, const DefinedRow& row) {
    const double lse = c.Lse(b, i, h);
    if (std::isnan(row.lse)) {
      ASSERT_TRUE(std::isnan(lse)) << lse;
    } else if (std::isinf(row.lse)) {
      ASSERT_EQ(lse, row.lse);
    } else {
      ASSERT_NEAR(lse, row.lse, 1e-4 * (1 + std::abs(row.lse)));
    }
    for (int64_t x = 0; x < c.shape.value_dim; ++x) {
      const double out = c.out.Get(b, i, h, x), expected = row.out[x];
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(out)) << out << " dim " << x;
      } else if (std::isinf(expected)) {
        ASSERT_EQ(out, expected) << "dim " << x;
      } else {
        ASSERT_NEAR(out, expected, 4 * Rounding(c.shape) * row.magnitude[x] + 1e-30) << "dim " << x;
      }
      ++(std::isfinite(expected) ? counts.finite : counts.odd);
    }
  });
  EXPECT_TRUE(c.out.GapsAreUntouched());
}

constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};

// Sets some elements of some rows to what is not finite.
void Spoil(StridedArray& rows, int count, std::mt19937_64& random) {
  const Shape& s = rows.shape();
  for (int n = 0; n < count; ++n) {
    rows.Set(static_cast<int64_t>(random() % s.batch), static_cast<int64_t>(random() % s.rows),
             static_cast<int64_t>(random() % s.heads), static_cast<int64_t>(random() % s.dim),
             kOdd[random() % 3]);
  }
}

// Before and behind the masks, within tiles and at their ends, written and merged in parts.
TEST_P(AttentionValuesTest, WhatIsNotFiniteReachesTheRowsThatSeeItAlone) {
  Counts counts;
  for (int number = 0; number < 45 && !HasFailure(); ++number) {
    std::mt19937_64 random(number);
    CaseShape shape = ShapeOf(number / 3, kTypes[number % 3]);
    const bool merge = random() % 2 == 0;
    if (merge) shape.result = Result::kMerge;
    shape.out_dtype = merge ? DataType::kFloat32 : kTypes[random() % 3];
    AttentionCase c(shape, random);
    if (merge) c.ClearState();
    if (random() % 3 != 0) Spoil(c.v, 3, random);
    if (random() % 3 != 0) Spoil(c.k, 1 + static_cast<int>(random() % 2), random);
    if (random() % 3 == 0) Spoil(c.q, 2, random);
    SCOPED_TRACE(absl::StrCat(number, ": ", c.shape.Describe()));
    Attend(c, merge ? 1 + static_cast<int64_t>(random() % 4) : 1);
    ExpectDefinition(c, counts);
  }
  EXPECT_GT(counts.finite, 100'000);
  EXPECT_GT(counts.odd, 50'000);
}

// The rows before the first that sees it are those of the same values without it, bit for bit.
TEST_P(AttentionValuesTest, RowsBeforeAnOddKeyHaveTheBitsThatTheyHaveWithoutIt) {
  for (int number = 0; number < 9; ++number) {
    std::vector<std::vector<double>> lses;
    for (const float odd : {0.25f, kOdd[0]}) {
      std::mt19937_64 random(number);
      CaseShape shape = ShapeOf(number, kTypes[number % 3]);
      shape.mask = Mask::kDiagonal;
      shape.query_rows = shape.key_rows = 150;
      shape.diagonal_shift = 0;
      AttentionCase c(shape, random);
      for (int64_t x = 0; x < shape.head_dim; ++x) c.k.Set(0, 100, 0, x, odd);
      Attend(c);
      lses.emplace_back();
      for (int64_t i = 0; i < 100; ++i) {
        lses.back().push_back(c.Lse(0, i, 0));
        for (int64_t x = 0; x < shape.value_dim; ++x) lses.back().push_back(c.out.Get(0, i, 0, x));
      }
      for (int64_t i = 100; i < 150; ++i) EXPECT_EQ(std::isnan(c.Lse(0, i, 0)), std::isnan(odd));
    }
    EXPECT_EQ(lses[0], lses[1]) << number;
  }
}

// The whole of a task is NaN where the scale is 0 and what it multiplies is not finite.
TEST_P(AttentionValuesTest, ZeroTimesWhatIsNotFinite) {
  for (const DataType dtype : kTypes) {
    std::mt19937_64 random(4);
    AttentionCase c({.dtype = dtype,
                     .query_rows = 70,
                     .key_rows = 130,
                     .head_dim = 64,
                     .value_dim = 64,
                     .scale = 0.0f},
                    random);
    for (const float odd : kOdd) {
      c.q.Set(0, 3, 0, 5, odd);
      Attend(c);
      for (int64_t i = 0; i < 70; ++i) ASSERT_EQ(std::isnan(c.Lse(0, i, 0)), i == 3) << i;
    }
  }
}

// Sums of one row of a tile alone overflow: the rows that other threads have are as good as ever.
TEST_P(AttentionValuesTest, SumsOfOneRowAloneThatOverflow) {
  Counts counts;
  for (const int64_t dim : {64, 128}) {
    for (const int64_t odd : {5, 40, 75, 110, 170}) {
      std::mt19937_64 random(odd);
      AttentionCase c({.dtype = DataType::kBFloat16,
                       .query_rows = 180,
                       .key_rows = 150,
                       .head_dim = dim,
                       .value_dim = dim,
                       .scale = 1.0f,
                       .gap_unit = 8},
                      random);
      // Two keys with great values, which no row sees but the odd one, to which all keys are alike.
      for (int64_t x = 0; x < dim; ++x) {
        for (int64_t i = 0; i < 180; ++i) c.q.Set(0, i, 0, x, x == 0 && i != odd ? 32.0f : 0.0f);
        for (int64_t j = 0; j < 150; ++j) c.k.Set(0, j, 0, x, x == 0 && j < 2 ? -32.0f : 0.0f);
        for (int64_t j = 0; j < 2; ++j) c.v.Set(0, j, 0, x, 3e38f);
      }
      SCOPED_TRACE(absl::StrCat("dim ", dim, " row ", odd));
      Attend(c);
      ExpectDefinition(c, counts);
    }
  }
  EXPECT_EQ(counts.odd, 0);
}

// Sums that overflow although their average does not.
TEST_P(AttentionValuesTest, ValuesAtTheEndOfTheRange) {
  Counts counts;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (int number = 0; number < 15 && !HasFailure(); ++number) {
      for (const bool merge : {false, true}) {
        std::mt19937_64 random(number);
        CaseShape shape = ShapeOf(number, dtype);
        if (merge) shape.result = Result::kMerge;
        AttentionCase c(shape, random);
        if (merge) c.ClearState();
        // Of some dims all of one sign, of others of either, and some small as ever.
        for (int64_t j = 0; j < shape.key_rows; ++j) {
          for (int64_t x = 0; x < shape.value_dim; ++x) {
            if (x % 3 == 2) continue;
            c.v.Set(0, j, 0, x, x % 3 == 1 && random() % 2 == 0 ? -2e38f : 2e38f);
          }
        }
        SCOPED_TRACE(absl::StrCat(number, ": ", c.shape.Describe()));
        Attend(c, merge ? 3 : 1);
        ExpectDefinition(c, counts);
      }
    }
  }
  EXPECT_EQ(counts.odd, 0);
}

TEST_P(AttentionValuesTest, TwoEqualKeysOf2e38) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    std::mt19937_64 random(1);
    AttentionCase c({.dtype = dtype, .query_rows = 3, .key_rows = 2}, random);
    c.k.Fill(1.0f);
    c.v.Fill(2e38f);
    Attend(c);
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t x = 0; x < 8; ++x) {
        EXPECT_NEAR(c.out.Get(0, i, 0, x) / c.v.Get(0, 0, 0, x), 1.0, 1e-6);
      }
    }
  }
}

// However small its weight, an infinity is felt, and keeps its sign.
TEST_P(AttentionValuesTest, AnInfinityOfAnyWeightReachesTheRow) {
  for (const DataType dtype : kTypes) {
    for (const int64_t parts : {1, 2, 5}) {
      std::mt19937_64 random(6);
      AttentionCase c({.dtype = dtype, .result = Result::kMerge, .query_rows = 2, .key_rows = 90},
                      random);
      c.ClearState();
      c.q.Fill(1.0f);
      c.k.Fill(0.0f);
      c.k.Set(0, 80, 0, 0, 300.0f);
      c.v.Set(0, 10, 0, 3, kOdd[1]);
      Attend(c, parts);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(c.out.Get(0, i, 0, 3), kInfinity) << parts;
        EXPECT_NEAR(c.out.Get(0, i, 0, 2), c.v.Get(0, 80, 0, 2), 1e-6);
      }
    }
  }
}

// A key far below the greatest has no weight at all.
TEST_P(AttentionValuesTest, SmallWeightsAreZero) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    std::mt19937_64 random(2);
    AttentionCase c({.dtype = dtype, .query_rows = 1, .key_rows = 40}, random);
    c.q.Fill(1.0f);
    for (int64_t j = 0; j < 40; ++j) {
      for (int64_t x = 0; x < 8; ++x) {
        c.k.Set(0, j, 0, x, j == 17 ? 0.0f : -25.0f);
        c.v.Set(0, j, 0, x, j == 17 ? 1.0f : 1e37f);
      }
    }
    Attend(c);
    for (int64_t x = 0; x < 8; ++x) EXPECT_EQ(c.out.Get(0, 0, 0, x), 1.0);
    EXPECT_EQ(c.Lse(0, 0, 0), 0.0);
  }
}

// Products with the scale are float32 too.
TEST_P(AttentionValuesTest, ScaledScoresThatOverflow) {
  std::mt19937_64 random(3);
  for (const float scale : {100.0f, -100.0f}) {
    for (const bool merge : {false, true}) {
      AttentionCase c({.result = merge ? Result::kMerge : Result::kWrite,
                       .query_rows = 3,
                       .key_rows = 70,
                       .scale = scale},
                      random);
      if (merge) c.ClearState();
      c.q.Fill(0.0f);
      c.k.Fill(0.0f);
      // Scores of 1e37 and more, of either sign, and such as are small.
      for (int64_t i = 0; i < 3; ++i) {
        constexpr float kQueries[] = {1e18f, -1e18f, 1.0f};
        c.q.Set(0, i, 0, 0, kQueries[i] * (scale > 0 ? 1.0f : -1.0f));
      }
      for (int64_t j = 0; j < 70; ++j) c.k.Set(0, j, 0, 0, 1e19f + 1e17f * static_cast<float>(j));
      Attend(c);
      EXPECT_TRUE(std::isnan(c.Lse(0, 0, 0)));
      EXPECT_EQ(c.Lse(0, 1, 0), -kInfinity);
      EXPECT_TRUE(std::isfinite(c.Lse(0, 2, 0)));
      for (int64_t x = 0; x < 8; ++x) {
        EXPECT_TRUE(std::isnan(c.out.Get(0, 0, 0, x)));
        EXPECT_EQ(c.out.Get(0, 1, 0, x), 0.0);
        EXPECT_NEAR(c.out.Get(0, 2, 0, x), c.v.Get(0, 69, 0, x), 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
