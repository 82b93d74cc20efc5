#include "engine/reference/row_tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "engine/order/permutation.h"
#include "engine/reference/deviation.h"
#include "engine/spec/job_spec_json.h"
#include "engine/spec/numbers.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

float Rounded(DataType dtype, double value) {
  char element[sizeof(float)];
  StoreElement(dtype, element, 0, static_cast<float>(value));
  return LoadElement(dtype, element, 0);
}

// One head that sees all keys from its first token.
class OneRow : public RowSource {
 public:
  std::vector<std::vector<double>> rows;
  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    std::copy_n(rows[token].begin() + first, values.size(), values.begin());
  }
};

struct RowCase {
  JobSpec spec;
  OneRow q, k, v;

  RowCase(DataType dtype, int64_t keys, int64_t head_dim, int64_t value_dim) {
    spec.dtype = dtype;
    spec.tokens = keys;
    spec.heads = spec.kv_heads = 1;
    spec.head_dim = head_dim;
    spec.value_dim = value_dim;
    spec.branches = {{keys, 1}};
    const auto width = static_cast<size_t>(head_dim);
    q.rows.assign(keys, std::vector<double>(width, 0.0));
    k.rows = q.rows;
    v.rows.assign(keys, std::vector<double>(value_dim, 0.0));
  }

  ExpectedRow Expect() const {
    EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
    return ExpectRow(spec, **Permutation::Make(spec, {}), 0, q, k, v);
  }

  double OutExcess(const ExpectedRow& expected, const std::vector<double>& out) const {
    return OutDeviation(spec, 0, expected, out).worst.excess;
  }
  static double LseExcess(const ExpectedRow& expected, double lse) {
    return LseDeviation(0, expected, std::vector<double>{lse}).worst.excess;
  }
};

// Two equal keys: what is left is the rounding of sums, of weights and of the result.
TEST(RowTolerance, IsNoMoreThanRoundingWhereAllValuesAreOne) {
  // 2 K + 16 of the sums of weights and of values each, and those of their quotient.
  constexpr double kSums = (2 * (2 * 2 + 16) + 2) * 0x1p-24;
  for (const auto& [dtype, weights, result] : {std::tuple{DataType::kFloat32, 0.0, 0x1p-24},
                                               {DataType::kBFloat16, 0x1p-8, 0x1p-8},
                                               {DataType::kFloat16, 0x1p-11, 0x1p-11}}) {
    RowCase c(dtype, 2, 8, 8);
    for (auto& row : c.v.rows) row.assign(8, 1.0);
    for (const double tolerance : c.Expect().tolerance.out) {
      EXPECT_GE(tolerance, weights + result) << DataTypeName(dtype);
      EXPECT_LE(tolerance, weights + result + kSums) << DataTypeName(dtype);
    }
  }
}

// A right result of a 16-bit type is as near as the type's numbers are, where these are subnormal
// as well.
TEST(RowTolerance, AcceptsRoundedSubnormalNumbers) {
  for (const auto& [dtype, size] :
       {std::pair{DataType::kFloat16, 0x1p-22}, {DataType::kBFloat16, 0x1p-131}}) {
    RowCase c(dtype, 5, 8, 8);
    for (int64_t j = 0; j < 5; ++j) {
      for (int64_t i = 0; i < 8; ++i) c.v.rows[j][i] = size * static_cast<double>((i + j) % 5);
    }
    c.v.rows[0][0] = 3 * size;
    const ExpectedRow expected = c.Expect();
    std::vector<double> right;
    for (const double out : expected.row.out) right.push_back(Rounded(dtype, out));
    EXPECT_LE(c.OutExcess(expected, right), 1) << DataTypeName(dtype);
    right[3] += 4 * Spacing(dtype, 0);
    EXPECT_EQ(c.OutExcess(expected, right) > 1, dtype == DataType::kFloat16);
  }
}

TEST(RowTolerance, RefusesZerosForSmallValues) {
  for (const DataType dtype : kTypes) {
    RowCase c(dtype, 100, 8, 8);
    for (auto& row : c.v.rows) std::ranges::fill(row, Rounded(dtype, 1e-6));
    const ExpectedRow expected = c.Expect();
    EXPECT_LE(c.OutExcess(expected, std::vector<double>(8, Rounded(dtype, 1e-6))), 1);
    EXPECT_GT(c.OutExcess(expected, std::vector<double>(8, 0.0)), 1) << DataTypeName(dtype);
  }
}

// Scores of 2^26 that float32 holds exactly: weights are as good as any.
TEST(RowTolerance, KnowsProductsThatAreExact) {
  RowCase c(DataType::kFloat32, 16, 16, 8);
  c.q.rows[0] = std::vector<double>(16, 8.0);
  c.q.rows[0][0] = 0x1p14;
  for (int64_t j = 0; j < 16; ++j) {
    c.k.rows[j][0] = 0x1p14;
    for (int64_t i = 1; i < 4; ++i) c.k.rows[j][i] = static_cast<double>(4 * ((i * j) % 3));
    for (int64_t i = 0; i < 8; ++i) c.v.rows[j][i] = static_cast<double>((i + j) % 7) / 8;
  }
  const ExpectedRow expected = c.Expect();
  EXPECT_DOUBLE_EQ(c.spec.Scale() * c.q.rows[0][0] * c.k.rows[0][0], 0x1p26);
  for (const double tolerance : expected.tolerance.out) EXPECT_LT(tolerance, 2e-5);
  EXPECT_LE(c.OutExcess(expected, expected.row.out), 1);
  // Merged by a log-sum-exp that is rounded to float32, spacing 8: any average of the values.
  std::vector<double> wrong = expected.row.out;
  wrong[0] += 0.58;
  EXPECT_GT(c.OutExcess(expected, wrong), 1);
  // Products that are not exact leave float32 at a loss, within the values that it averages.
  c.q.rows[0][1] = 1.0 + 0x1p-20;
  const ExpectedRow at_a_loss = c.Expect();
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_GT(at_a_loss.tolerance.out[i], 0.01);
    EXPECT_LT(at_a_loss.tolerance.out[i], 1.0);
  }
}

TEST(RowTolerance, DoesNotJudgeWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  RowCase c(DataType::kFloat32, 4, 8, 8);
  EXPECT_TRUE(c.Expect().tolerance.AllJudged());
  for (OneRow RowCase::*rows : {&RowCase::q, &RowCase::k, &RowCase::v}) {
    for (const double odd : {nan, infinity, -infinity}) {
      RowCase with = c;
      (with.*rows).rows[0][3] = odd;
      EXPECT_FALSE(with.Expect().tolerance.AllJudged());
    }
  }
  // Behind a causal mask, or in another token's query, nobody sees it.
  for (OneRow RowCase::*rows : {&RowCase::q, &RowCase::k, &RowCase::v}) {
    RowCase with = c;
    with.spec.causal = true;
    (with.*rows).rows[2][3] = nan;
    EXPECT_TRUE(with.Expect().tolerance.AllJudged());
  }
  // Products that leave float32, and those that do so once they are scaled.
  c.q.rows[0][0] = c.k.rows[2][0] = 1e20F;
  EXPECT_FALSE(c.Expect().tolerance.AllJudged());
  c.q.rows[0][0] = 1e10F;
  EXPECT_TRUE(c.Expect().tolerance.AllJudged());
  c.spec.scale = 1e9;
  EXPECT_FALSE(c.Expect().tolerance.AllJudged());
}

TEST(RowTolerance, IsNothingWhereNothingIsSeen) {
  RowCase c(DataType::kFloat32, 4, 8, 8);
  c.spec.mixing = Mixing::kHeadGroups;
  c.spec.branches = {{4, 2}, {4, 2}};
  c.spec.heads = c.spec.kv_heads = 2;
  for (OneRow* rows : {&c.q, &c.k, &c.v}) {
    for (auto& row : rows->rows) row.assign(16, 1.0);
  }
  const ExpectedRow expected = c.Expect();  // the second head begins at token 1
  EXPECT_EQ(expected.tolerance.lse[1], 0);
  EXPECT_EQ(expected.tolerance.out[8], 0);
  EXPECT_GT(expected.tolerance.out[0], 0);
  std::vector<double> out = expected.row.out;
  EXPECT_EQ(OutDeviation(c.spec, 0, expected, out).worst.excess, 0);
  out[9] = 1e-30;
  EXPECT_GT(OutDeviation(c.spec, 0, expected, out).worst.excess, 1);
}

}  // namespace
}  // namespace hilbert_ring
