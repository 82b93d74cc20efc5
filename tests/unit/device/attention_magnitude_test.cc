// Device::Attend in shapes for each of a GPU's kernels, over finite values and scores of any size.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/device/attention_at_its_ends.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class AttentionMagnitudeTest : public AttentionAtItsEnds {};
HILBERT_RING_FOR_ALL_DEVICES(AttentionMagnitudeTest);

// Of finite input whose scores are finite: at any size, rows lie within the values that they see.
TEST_P(AttentionMagnitudeTest, RowsLieWithinTheirValuesAtAnyMagnitude) {
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
    ForRows(c, [&](int64_t b, int64_t i, int64_t h, const DefinedRow& row) {
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
TEST_P(AttentionMagnitudeTest, TheGreatestOfLargeScoresIsFound) {
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
        ForRows(c, [&](int64_t b, int64_t i, int64_t h, const DefinedRow& row) {
          ASSERT_NEAR(c.Lse(b, i, h), row.lse, 1e-6 * row.terms);
          const bool decides = row.most - row.second > 1e-5 * row.terms;
          decided += decides ? 1 : 0;
          for (int64_t x = 0; x < dim; ++x) {
            const double out = c.out.Get(b, i, h, x);
            const double slack = Rounding(c.shape) * std::max(-row.least[x], row.greatest[x]);
            ASSERT_GE(out, row.least[x] - slack) << "dim " << x;
            ASSERT_LE(out, row.greatest[x] + slack) << "dim " << x;
            if (decides) {
              ASSERT_NEAR(out, row.best_value[x], slack) << "dim " << x;
            }
          }
        });
        EXPECT_GT(decided, 100);
      }
    }
  }
}

// Scores that float32 holds, all near a level: however they are cut, the parts keep their weights.
TEST_P(AttentionMagnitudeTest, MergedResultsAreAsGoodAsWholeOnesAtAnyLevel) {
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
      c.ClearState();
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
      ForRows(c, [&](int64_t b, int64_t i, int64_t h, const DefinedRow& row) {
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
