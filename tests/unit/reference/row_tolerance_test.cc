#include "engine/reference/row_tolerance.h"

#include <algorithm>
#include <array>
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

// A head that sees all keys from its first token.
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

  void Draw(std::mt19937_64& random, double query_size) {
    std::normal_distribution<double> normal;
    for (OneRow* rows : {&q, &k, &v}) {
      const double size = rows == &q ? query_size : 1;
      for (auto& row : rows->rows) {
        for (double& x : row) x = Rounded(spec.dtype, size * normal(random));
      }
    }
  }

  // Plain float32 code sums scores, changes them, subtracts the greatest, and sums weights one by
  // one. The sink is merged last, in float64, with the exact scale of the greatest product.
  struct Plain {
    std::vector<double> out;
    double lse = 0;
  };
  Plain Compute() const {
    const auto scale = static_cast<float>(spec.Scale());
    const auto cap = static_cast<float>(spec.softcap.value_or(0));
    const auto slope = static_cast<float>(spec.alibi ? spec.alibi->slopes[0] : 0);
    std::vector<float> scores;
    float most = -std::numeric_limits<float>::infinity();
    for (size_t j = 0; j < k.rows.size(); ++j) {
      float product = 0;
      for (size_t i = 0; i < k.rows[j].size(); ++i) {
        product += static_cast<float>(q.rows[0][i]) * static_cast<float>(k.rows[j][i]);
      }
      most = std::max(most, product);
      float score = product * scale;
      if (spec.softcap) score = cap * std::tanh(score / cap);
      scores.push_back(score - slope * static_cast<float>(j));
    }
    const float top = *std::ranges::max_element(scores);
    float sum = 0;
    std::vector<float> out(spec.value_dim);
    for (size_t j = 0; j < scores.size(); ++j) {
      const float weight = std::exp(scores[j] - top);
      sum += weight;
      for (size_t i = 0; i < out.size(); ++i) out[i] += weight * static_cast<float>(v.rows[j][i]);
    }
    Plain plain{.lse = static_cast<double>(static_cast<float>(top + std::log(sum)))};
    double share = 1;
    if (!spec.sinks.empty()) {
      const double score = ChangesScores(spec) ? top : static_cast<double>(scale) * most;
      const double greater = std::max(score, spec.sinks[0]);
      const double part = sum * std::exp(score - greater);
      const double total = part + std::exp(spec.sinks[0] - greater);
      share = part / total;
      plain.lse = static_cast<double>(static_cast<float>(greater + std::log(total)));
    }
    for (const float value : out) {
      const float average = value / sum;
      plain.out.push_back(Rounded(spec.dtype, average * share));
    }
    return plain;
  }

  double OutExcess(const ExpectedRow& expected, const std::vector<double>& out) const {
    return OutDeviation(spec, 0, expected, out).worst.excess;
  }
  static double LseExcess(const ExpectedRow& expected, double lse) {
    return LseDeviation(0, expected, std::vector<double>{lse}).worst.excess;
  }
};

TEST(RowTolerance, SpacingOfTypes) {
  EXPECT_EQ(Spacing(DataType::kFloat32, 1), 0x1p-23);
  EXPECT_EQ(Spacing(DataType::kFloat32, -3), 0x1p-22);
  EXPECT_EQ(Spacing(DataType::kFloat32, 0), 0x1p-149);
  EXPECT_EQ(Spacing(DataType::kFloat32, 1e-44), 0x1p-149);
  EXPECT_EQ(Spacing(DataType::kBFloat16, 1.5), 0x1p-7);
  EXPECT_EQ(Spacing(DataType::kBFloat16, 1e-40), 0x1p-133);
  EXPECT_EQ(Spacing(DataType::kFloat16, 1), 0x1p-10);
  EXPECT_EQ(Spacing(DataType::kFloat16, 1e-6), 0x1p-24);
}

// Two equal keys leave the rounding of sums, of weights and of the result.
TEST(RowTolerance, IsNoMoreThanRoundingWhereAllValuesAreOne) {
  // The sums of weights and of values have 2 K + 16 roundings each, their quotient two.
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

// A correct 16-bit result is within the type's spacing, also among subnormal numbers.
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

// Float32 holds scores of 2^26 exactly, so weights are exact too.
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
  EXPECT_LE(c.OutExcess(expected, c.Compute().out), 1);
  // Merging by a log-sum-exp in float32 (spacing 8) could give any average of the values.
  std::vector<double> wrong = expected.row.out;
  wrong[0] += 0.58;
  EXPECT_GT(c.OutExcess(expected, wrong), 1);
  // Inexact products lose all precision in float32, within the averaged values.
  c.q.rows[0][1] = 1.0 + 0x1p-20;
  const ExpectedRow at_a_loss = c.Expect();
  EXPECT_LE(c.OutExcess(at_a_loss, c.Compute().out), 1);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_GT(at_a_loss.tolerance.out[i], 0.01);
    EXPECT_LT(at_a_loss.tolerance.out[i], 1.0);
  }
}

// Any arithmetic finds a key that is far ahead, however large the scores are.
TEST(RowTolerance, IsSmallWhereOneKeyIsFarAhead) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal;
  RowCase c(DataType::kFloat32, 64, 32, 8);
  for (auto& row : c.k.rows) {
    for (double& x : row) x = Rounded(DataType::kFloat32, 1e9 * normal(random));
  }
  for (auto& row : c.v.rows) {
    for (double& x : row) x = Rounded(DataType::kFloat32, normal(random));
  }
  c.q.rows[0] = c.k.rows[17];
  const ExpectedRow expected = c.Expect();
  EXPECT_GT(expected.row.lse[0], 1e17);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(expected.row.out[i], c.v.rows[17][i]);
    EXPECT_LT(expected.tolerance.out[i], 1e-5 * std::abs(expected.row.out[i]));
  }
  EXPECT_GT(c.OutExcess(expected, c.v.rows[16]), 1000);
}

// q and k nearly cancel: lse is small and as inexact as its products.
TEST(RowTolerance, LseFollowsTheProducts) {
  RowCase c(DataType::kFloat32, 1, 8, 8);
  c.q.rows[0] = {1e4F, 1e4F, 0, 0, 0, 0, 0, 0};
  c.k.rows[0] = {Rounded(DataType::kFloat32, 1e4 / 3),
                 -Rounded(DataType::kFloat32, 1e4 / 3 + 1e-3),
                 0,
                 0,
                 0,
                 0,
                 0,
                 0};
  const ExpectedRow expected = c.Expect();
  const double lse = c.Compute().lse;
  EXPECT_LT(std::abs(expected.row.lse[0]), 10);
  EXPECT_LE(RowCase::LseExcess(expected, lse), 1) << lse << " " << expected.row.lse[0];
  EXPECT_GT(expected.tolerance.lse[0], 1e-2);
  EXPECT_GT(RowCase::LseExcess(expected, expected.row.lse[0] + 100), 1);
  // With small products it is exact.
  c.q.rows[0] = {0.5, 0.25, 0, 0, 0, 0, 0, 0};
  c.k.rows[0] = {0.5, -0.5, 0, 0, 0, 0, 0, 0};
  EXPECT_LT(c.Expect().tolerance.lse[0], 2e-6);
}

// The tolerance of doubled values is doubled.
TEST(RowTolerance, ScalesWithTheValues) {
  std::mt19937_64 random(3);
  for (const DataType dtype : kTypes) {
    RowCase c(dtype, 40, 16, 8);
    c.Draw(random, 1);
    const RowTolerance before = c.Expect().tolerance;
    for (auto& row : c.v.rows) {
      for (double& x : row) x *= 64;
    }
    const RowTolerance after = c.Expect().tolerance;
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(after.out[i], 64 * before.out[i], 1e-12 * after.out[i]);
    }
    EXPECT_EQ(after.lse, before.lse);
  }
}

// Kinds: a softcap (1), alibi (2) and a sink (4) together.
TEST(RowTolerance, CoversFloat32OfChangedScores) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  for (int kind = 1; kind < 8; ++kind) {
    double most_out = 0, most_lse = 0;  // of ordinary scores
    for (int trial = 0; trial < 150 && !HasFailure(); ++trial) {
      const double size = std::array{0.25, 1.0, 16.0, 1024.0, 65536.0}[trial % 5];
      RowCase c(DataType::kFloat32, 1 + static_cast<int64_t>(random() % 300), 32, 8);
      c.Draw(random, size);
      if ((kind & 1) != 0) c.spec.softcap = std::array{0.7, 3.0, 30.0, 1000.0}[trial % 4];
      if ((kind & 2) != 0) c.spec.alibi = Alibi{{normal(random) * std::exp2(-(trial % 8))}};
      if ((kind & 4) != 0) c.spec.sinks = {normal(random) * std::array{1.0, 10.0, size}[trial % 3]};
      const ExpectedRow expected = c.Expect();
      ASSERT_TRUE(expected.tolerance.AllJudged());
      const RowCase::Plain plain = c.Compute();
      const double out = c.OutExcess(expected, plain.out);
      const double lse = RowCase::LseExcess(expected, plain.lse);
      EXPECT_LT(std::max(out, lse), 0.5) << kind << " " << trial;
      if (size > 16) continue;
      most_out = std::max(most_out, out);
      most_lse = std::max(most_lse, lse);
    }
    EXPECT_GT(most_out, 0.02) << kind;
    EXPECT_GT(most_lse, 0.02) << kind;
  }
}

// A cap that all scores are far above loses no more than small scores do.
TEST(RowTolerance, IsSmallWhereTheCapSaturates) {
  std::mt19937_64 random(6);
  RowCase c(DataType::kFloat32, 64, 32, 8);
  c.Draw(random, 1e9);
  EXPECT_GT(c.Expect().tolerance.lse[0], 1e3);
  c.spec.softcap = 3.0;
  const RowTolerance tolerance = c.Expect().tolerance;
  EXPECT_LT(tolerance.lse[0], 3e-5);
  for (const double out : tolerance.out) EXPECT_LT(out, 3e-5);
}

TEST(RowTolerance, RefusesOtherChangesOfScores) {
  std::mt19937_64 random(7);
  RowCase c(DataType::kFloat32, 50, 16, 8);
  c.Draw(random, 4.0);
  c.spec.softcap = 5.0;
  c.spec.alibi = Alibi{{0.125}};
  c.spec.sinks = {2.0};
  c.spec.window = Window{.right = 30};
  const ExpectedRow expected = c.Expect();
  EXPECT_LE(RowCase::LseExcess(expected, expected.row.lse[0]), 1);
  const std::vector<void (*)(JobSpec&)> changes = {
      [](JobSpec& spec) { spec.softcap.reset(); },
      [](JobSpec& spec) { *spec.softcap *= 1 + 1e-4; },
      [](JobSpec& spec) { spec.alibi.reset(); },
      [](JobSpec& spec) { spec.alibi->slopes[0] *= 1 + 1e-4; },
      [](JobSpec& spec) { spec.sinks.clear(); },
      [](JobSpec& spec) { spec.sinks[0] += 1e-3; },
      [](JobSpec& spec) { spec.window.reset(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    RowCase other = c;
    changes[i](other.spec);
    const ReferenceRow row = other.Expect().row;
    EXPECT_GT(RowCase::LseExcess(expected, row.lse[0]), 1) << i;
    EXPECT_GT(c.OutExcess(expected, row.out), 1) << i;
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
  // A causal mask, or another token's query, hides it.
  for (OneRow RowCase::*rows : {&RowCase::q, &RowCase::k, &RowCase::v}) {
    RowCase with = c;
    with.spec.causal = true;
    (with.*rows).rows[2][3] = nan;
    EXPECT_TRUE(with.Expect().tolerance.AllJudged());
  }
  // Products leave float32 before or after they are scaled.
  c.q.rows[0][0] = c.k.rows[2][0] = 1e20F;
  EXPECT_FALSE(c.Expect().tolerance.AllJudged());
  c.q.rows[0][0] = 1e10F;
  EXPECT_TRUE(c.Expect().tolerance.AllJudged());
  c.spec.scale = 1e9;
  EXPECT_FALSE(c.Expect().tolerance.AllJudged());
  // Biases leave it at three keys of distance.
  c.spec.scale.reset();
  c.spec.alibi = Alibi{{3e37}};
  EXPECT_TRUE(c.Expect().tolerance.AllJudged());
  c.spec.alibi = Alibi{{5e37}};
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
  // A sink is the whole softmax of such a row.
  c.spec.sinks = {0, 50};
  const ExpectedRow sunk = c.Expect();
  EXPECT_EQ(sunk.row.lse[1], 50);
  EXPECT_LT(sunk.tolerance.lse[1], 1e-4);
  EXPECT_GT(OutDeviation(c.spec, 0, sunk, out).worst.excess, 1);
}

}  // namespace
}  // namespace hilbert_ring
