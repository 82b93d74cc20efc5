// Device::Attend at the ends of float32, in shapes for each of a GPU's kernels: scores and values
// of any size, and what is not finite. Every kernel has every_value_test.cc; this one is run where
// kernels are emulated.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/device/attention_case.h"
#include "tests/unit/device/devices_under_test.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class AttentionValuesTest : public testing::TestWithParam<std::string> {
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

HILBERT_RING_FOR_ALL_DEVICES(AttentionValuesTest);

// One row and head by the definition, in float64.
struct Row {
  std::vector<double> out;
  std::vector<double> magnitude;        // sum of weight * |value|, over all weights
  std::vector<double> least, greatest;  // of the values seen
  double lse = -kInfinity;
  double most = -kInfinity;    // the greatest score
  double second = -kInfinity;  // the next
  int64_t best = -1;           // the greatest score's key
  double terms = 0;            // greatest sum of |scale * q * k| over the dims of a score
  bool sees_any = false;
};

Row RowOf(const AttentionCase& c, int64_t b, int64_t i, int64_t h) {
  const CaseShape& s = c.shape;
  Row row;
  row.out.assign(s.value_dim, 0.0);
  row.magnitude.assign(s.value_dim, 0.0);
  row.least.assign(s.value_dim, kInfinity);
  row.greatest.assign(s.value_dim, -kInfinity);
  std::vector<double> scores(s.key_rows, -kInfinity);
  bool spoilt = false;
  for (int64_t j = 0; j < s.key_rows; ++j) {
    if (!c.Sees(b, i, j)) continue;
    row.sees_any = true;
    double dot = 0, terms = 0;
    for (int64_t x = 0; x < s.head_dim; ++x) {
      const double term = c.q.Get(b, i, h, x) * c.k.Get(b, j, 0, x);
      dot += term;
      terms += std::abs(term * s.scale);
    }
    scores[j] = dot * s.scale;
    spoilt = spoilt || std::isnan(scores[j]) || scores[j] == kInfinity;
    row.terms = std::max(row.terms, terms);
    if (scores[j] > row.most) {
      row.second = row.most;
      row.most = scores[j];
      row.best = j;
    } else {
      row.second = std::max(row.second, scores[j]);
    }
    for (int64_t x = 0; x < s.value_dim; ++x) {
      row.least[x] = std::min(row.least[x], c.v.Get(b, j, 0, x));
      row.greatest[x] = std::max(row.greatest[x], c.v.Get(b, j, 0, x));
    }
  }
  if (spoilt) {
    row.lse = kNaN;
    row.out.assign(s.value_dim, kNaN);
    return row;
  }
  if (row.most == -kInfinity) return row;
  double sum = 0;
  for (int64_t j = 0; j < s.key_rows; ++j) {
    if (!c.Sees(b, i, j)) continue;
    const double weight = std::exp(scores[j] - row.most);
    sum += weight;
    for (int64_t x = 0; x < s.value_dim; ++x) {
      row.out[x] += weight * c.v.Get(b, j, 0, x);
      row.magnitude[x] += weight * std::abs(c.v.Get(b, j, 0, x));
    }
  }
  for (double& x : row.out) x /= sum;
  for (double& x : row.magnitude) x /= sum;
  row.lse = row.most + std::log(sum);
  return row;
}

template <typename Check>
void ForRows(const AttentionCase& c, const Check& check) {
  for (int64_t b = 0; b < c.shape.batch; ++b)
    for (int64_t i = 0; i < c.shape.query_rows; ++i)
      for (int64_t h = 0; h < c.shape.heads; ++h) {
        if (testing::Test::HasFailure()) return;
        SCOPED_TRACE(absl::StrCat("batch ", b, " row ", i, " head ", h));
        check(b, i, h, RowOf(c, b, i, h));
      }
}

// What rounding of weights and of results may do to one, relative to its terms.
double Rounding(const CaseShape& s) {
  const auto of = [](DataType type) {
    return type == DataType::kFloat32 ? 0x1p-20 : type == DataType::kBFloat16 ? 0x1p-7 : 0x1p-10;
  };
  return of(s.dtype) + of(s.out_dtype);
}

// As the definition says: what is not finite is where it says so and nowhere else. Counts the
// elements that are finite, and those that are not.
struct Counts {
  int64_t finite = 0, odd = 0;
};
void ExpectDefinition(const AttentionCase& c, Counts& counts) {
  ForRows(c, [&](int64_t b, int64_t i, int64_t h, const Row& row) {
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

// A shape for each of a GPU's kernels, of several tiles.
CaseShape ShapeOf(int number, DataType dtype) {
  constexpr int64_t kDims[] = {16, 64, 104, 128, 200};
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

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};
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
    if (merge) {  // nothing was there before
      c.out.Fill(0.0f);
      c.row_max.Fill(-std::numeric_limits<float>::infinity());
      c.row_sum.Fill(0.0f);
    }
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
        if (merge) {
          c.out.Fill(0.0f);
          c.row_max.Fill(-std::numeric_limits<float>::infinity());
          c.row_sum.Fill(0.0f);
        }
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
      c.out.Fill(0.0f);
      c.row_max.Fill(-std::numeric_limits<float>::infinity());
      c.row_sum.Fill(0.0f);
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
      if (merge) {
        c.out.Fill(0.0f);
        c.row_max.Fill(-std::numeric_limits<float>::infinity());
        c.row_sum.Fill(0.0f);
      }
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

// Of finite input whose scores are finite: at any size, rows lie within the values that they see.
TEST_P(AttentionValuesTest, RowsLieWithinTheirValuesAtAnyMagnitude) {
  for (int number = 0; number < 45 && !HasFailure(); ++number) {
    std::mt19937_64 random(100 + number);
    CaseShape shape = ShapeOf(number / 3, kTypes[number % 3]);
    const bool narrow = shape.dtype == DataType::kFloat16;
    const auto magnitude = [&] {
      return std::pow(10.0, std::uniform_real_distribution<double>(narrow ? -6 : -30,
                                                                   narrow ? 3.5 : 18)(random));
    };
    AttentionCase c(shape, random);
    for (StridedArray* rows : {&c.q, &c.k, &c.v}) {
      const double by = magnitude();
      const Shape& s = rows->shape();
      for (int64_t i = 0; i < s.rows; ++i)
        for (int64_t h = 0; h < s.heads; ++h)
          for (int64_t x = 0; x < s.dim; ++x) {
            rows->Set(0, i, h, x, static_cast<float>(rows->Get(0, i, h, x) * by));
          }
    }
    SCOPED_TRACE(absl::StrCat(number, ": ", c.shape.Describe()));
    Attend(c);
    ForRows(c, [&](int64_t b, int64_t i, int64_t h, const Row& row) {
      if (row.terms / std::abs(shape.scale) > 1e38) return;
      const double lse = c.Lse(b, i, h);
      if (!row.sees_any) {
        ASSERT_EQ(lse, -kInfinity);
        return;
      }
      ASSERT_NEAR(lse, row.lse, 1e-5 * (1 + row.terms));
      for (int64_t x = 0; x < shape.value_dim; ++x) {
        const double out = c.out.Get(b, i, h, x);
        const double slack = Rounding(shape) * std::max(-row.least[x], row.greatest[x]) + 1e-37;
        ASSERT_GE(out, row.least[x] - slack) << "dim " << x;
        ASSERT_LE(out, row.greatest[x] + slack) << "dim " << x;
      }
    });
  }
}

// Scores of 2^40, of which one is far ahead: its value is the result.
TEST_P(AttentionValuesTest, TheGreatestOfLargeScoresIsFound) {
  for (const int64_t dim : {24, 32, 48, 80, 128}) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      for (const float sign : {1.0f, -1.0f}) {
        std::mt19937_64 random(dim);
        AttentionCase c({.dtype = dtype,
                         .query_rows = 140,
                         .key_rows = 200,
                         .head_dim = dim,
                         .value_dim = dim,
                         .scale = sign / std::sqrt(static_cast<float>(dim)),
                         .gap_unit = 8},
                        random);
        for (StridedArray* rows : {&c.q, &c.k}) {
          for (int64_t i = 0; i < rows->shape().rows; ++i)
            for (int64_t x = 0; x < dim; ++x) {
              rows->Set(0, i, 0, x, static_cast<float>(random() % 65'536));
            }
        }
        SCOPED_TRACE(c.shape.Describe());
        Attend(c);
        int decided = 0;
        ForRows(c, [&](int64_t b, int64_t i, int64_t h, const Row& row) {
          ASSERT_NEAR(c.Lse(b, i, h), row.lse, 1e-6 * row.terms);
          const bool decides = row.most - row.second > 1e-5 * row.terms;
          decided += decides ? 1 : 0;
          for (int64_t x = 0; x < dim; ++x) {
            const double out = c.out.Get(b, i, h, x);
            const double slack = Rounding(c.shape) * std::max(-row.least[x], row.greatest[x]);
            ASSERT_GE(out, row.least[x] - slack) << "dim " << x;
            ASSERT_LE(out, row.greatest[x] + slack) << "dim " << x;
            if (decides) {
              ASSERT_NEAR(out, c.v.Get(b, row.best, 0, x), slack) << "dim " << x;
            }
          }
        });
        EXPECT_GT(decided, 100);
      }
    }
  }
}

// Scores that float32 holds, all near a level: however they are cut, the parts keep their weights.
TEST_P(AttentionValuesTest, MergedResultsAreAsGoodAsWholeOnesAtAnyLevel) {
  for (int level = 6; level <= 20; level += 2) {
    double whole = 0;
    for (int64_t parts = 1; parts <= 7; ++parts) {
      std::mt19937_64 random(level);
      AttentionCase c({.result = Result::kMerge,
                       .query_rows = 40,
                       .key_rows = 210,
                       .head_dim = 24,
                       .value_dim = 16,
                       .scale = 1 / std::sqrt(24.0f)},
                      random);
      c.out.Fill(0.0f);
      c.row_max.Fill(-std::numeric_limits<float>::infinity());
      c.row_sum.Fill(0.0f);
      const auto eighths = [&] { return static_cast<float>(random() % 65) / 8 - 4; };
      for (int64_t i = 0; i < 40; ++i) {
        for (int64_t x = 0; x < 24; ++x) c.q.Set(0, i, 0, x, x < 2 ? 1.0f : 0.0f);
      }
      for (int64_t j = 0; j < 210; ++j) {
        for (int64_t x = 0; x < 24; ++x)
          c.k.Set(0, j, 0, x, x < 1 ? std::ldexp(1.0f, level) : eighths());
      }
      Attend(c, parts);
      double worst = 0;
      ForRows(c, [&](int64_t b, int64_t i, int64_t h, const Row& row) {
        for (int64_t x = 0; x < 16; ++x) {
          worst = std::max(worst, std::abs(c.out.Get(b, i, h, x) - row.out[x]));
        }
        ASSERT_NEAR(c.Lse(b, i, h), row.lse, 1e-6 * (1 + row.lse));
      });
      if (parts == 1) whole = worst;
      EXPECT_LE(worst, 2 * std::max(whole, 1e-7)) << parts << " parts at 2^" << level;
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
