#include "engine/reference/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "engine/order/permutation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_case.h"
#include "tests/support/reference_attention.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using ::testing::ElementsAre;

class WatchedRows final : public RowSource {
 public:
  WatchedRows(std::vector<double> values, int64_t width)
      : values_(std::move(values)), width_(width) {}

  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    read_.insert(token);
    ASSERT_LE(first + static_cast<int64_t>(values.size()), width_);
    std::copy_n(values_.begin() + token * width_ + first, values.size(), values.begin());
  }

  const std::set<int64_t>& read() const { return read_; }

 private:
  const std::vector<double> values_;
  const int64_t width_;
  mutable std::set<int64_t> read_;
};

// Rows whose values are all the token's number times a factor.
class NumberedRows final : public RowSource {
 public:
  explicit NumberedRows(double factor) : factor_(factor) {}
  void Read(int64_t token, int64_t, std::span<double> values) const override {
    std::fill(values.begin(), values.end(), factor_ * static_cast<double>(token));
  }

 private:
  const double factor_;
};

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Stored results are float32: one rounding from the oracle's.
void ExpectStored(double actual, double stored, const std::string& place) {
  if (actual == stored) return;  // infinities as well
  if (std::isnan(actual) && std::isnan(stored)) return;
  EXPECT_NEAR(actual, stored, 1e-6 * std::abs(stored) + 1e-9) << place;
}

class GoldenReference : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto golden = testing::LoadGoldenCase(GetParam());
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
  }

  testing::GoldenCase golden_;
};

// Orders are stored, or evaluated by range.
TEST_P(GoldenReference, RowsAgreeWithTheOracle) {
  const JobSpec& spec = golden_.spec;
  const WatchedRows q(Doubles(golden_.q), spec.heads * spec.head_dim);
  const WatchedRows k(Doubles(golden_.k), spec.kv_heads * spec.head_dim);
  const WatchedRows v(Doubles(golden_.v), spec.kv_heads * spec.value_dim);
  std::mt19937_64 random(3);
  for (const int64_t stored : {Permutation::kDefaultMaxStoredTokens, int64_t{0}}) {
    const auto order = Permutation::Make(spec, golden_.coords, stored);
    ASSERT_TRUE(order.ok()) << order.status();
    for (int trial = 0; trial < 40 && !HasFailure(); ++trial) {
      const int64_t token = trial == 0 ? spec.tokens - 1 : random() % spec.tokens;
      const ReferenceRow row = ReferenceAttentionRow(spec, **order, token, q, k, v);
      ASSERT_EQ(static_cast<int64_t>(row.out.size()), spec.heads * spec.value_dim);
      ASSERT_EQ(static_cast<int64_t>(row.lse.size()), spec.heads);
      for (size_t i = 0; i < row.out.size() && !HasFailure(); ++i) {
        ExpectStored(row.out[i], golden_.out[token * row.out.size() + i],
                     "token " + std::to_string(token));
      }
      for (size_t i = 0; i < row.lse.size() && !HasFailure(); ++i) {
        ExpectStored(row.lse[i], golden_.lse[token * row.lse.size() + i],
                     "token " + std::to_string(token));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenReference, ::testing::ValuesIn(testing::GoldenCaseNames()),
                         [](const auto& info) { return info.param; });

JobSpec SmallSpec() {
  JobSpec spec;
  spec.tokens = 8;
  spec.heads = 1;
  spec.kv_heads = 1;
  spec.head_dim = 8;
  spec.value_dim = 8;
  spec.branches = {{8, 1}};
  return spec;
}

ReferenceRow RowOf(const JobSpec& spec, int64_t token, const RowSource& q, const RowSource& k,
                   const RowSource& v) {
  EXPECT_TRUE(Validate(spec).ok()) << Validate(spec);
  const auto order = Permutation::Make(spec, {});
  EXPECT_TRUE(order.ok()) << order.status();
  return ReferenceAttentionRow(spec, **order, token, q, k, v);
}

TEST(ReferenceAttentionRow, ReadsOnlyTheRowsThatItSees) {
  JobSpec spec = SmallSpec();
  spec.tokens = 20;
  spec.branches = {{8, 2}};
  const WatchedRows q(std::vector<double>(160, 1.0), 8);
  const WatchedRows k(std::vector<double>(160, 1.0), 8);
  const WatchedRows v(std::vector<double>(160, 1.0), 8);
  RowOf(spec, 10, q, k, v);
  EXPECT_THAT(q.read(), ElementsAre(10));
  EXPECT_THAT(k.read(), ElementsAre(8, 10, 12, 14));
  EXPECT_THAT(v.read(), ElementsAre(8, 10, 12, 14));
}

TEST(ReferenceAttentionRow, ZeroKeysStayStableBesideHugeScores) {
  JobSpec spec = SmallSpec();
  spec.branches = {{6, 1}};
  spec.tail = Tail::kZero;
  spec.scale = 100.0;
  const ReferenceRow high = RowOf(spec, 7, NumberedRows(1.0), NumberedRows(1.0), NumberedRows(1.0));
  EXPECT_DOUBLE_EQ(high.lse[0], 39200.0);
  EXPECT_DOUBLE_EQ(high.out[0], 7.0);
  spec.scale = -100.0;
  const ReferenceRow low = RowOf(spec, 7, NumberedRows(1.0), NumberedRows(1.0), NumberedRows(1.0));
  EXPECT_EQ(high.top[0].token, 7);
  EXPECT_DOUBLE_EQ(high.top[0].product, 392.0);
  EXPECT_DOUBLE_EQ(low.lse[0], std::log(4.0));
  EXPECT_EQ(low.top[0].token, ReferenceRow::kZeroKey);
  EXPECT_DOUBLE_EQ(low.top[0].weights, 4.0);
  EXPECT_EQ(low.out[0], 0.0);
}

// A row of a job of 2^40 tokens costs only the keys that it sees.
TEST(ReferenceAttentionRow, HugeJobsWithHugeBranches) {
  JobSpec spec = SmallSpec();
  spec.tokens = int64_t{1} << 40;
  spec.branches = {{int64_t{1} << 62, int64_t{1} << 62}};
  const NumberedRows zero(0.0), one(1.0);
  EXPECT_DOUBLE_EQ(RowOf(spec, 0, zero, one, one).lse[0], 0.0);
  spec.branches = {{int64_t{1} << 40, int64_t{1} << 32}};
  EXPECT_DOUBLE_EQ(RowOf(spec, int64_t{1} << 32, zero, one, one).lse[0], std::log(256.0));
  spec.ordering = Ordering{};
  EXPECT_DOUBLE_EQ(RowOf(spec, 0, zero, one, one).lse[0], std::log(256.0));
}

std::vector<double> RowsWith(int64_t tokens, double value, int64_t token, int64_t dim, double odd) {
  std::vector<double> rows(tokens * 8, value);
  rows[token * 8 + dim] = odd;
  return rows;
}

TEST(ReferenceAttention, AScoreOfMinusInfinityHasNoWeight) {
  JobSpec spec = SmallSpec();
  const std::vector<double> ones(8 * 8, 1.0);
  const auto result = ReferenceAttention(spec, ones, RowsWith(8, 1, 3, 0, -kInfinity),
                                         RowsWith(8, 1, 3, 1, kNan), {});
  ASSERT_TRUE(result.ok());
  EXPECT_DOUBLE_EQ(result->lse[0], std::sqrt(8.0) + std::log(7.0));
  EXPECT_DOUBLE_EQ(result->out[0], 1.0);
  EXPECT_TRUE(std::isnan(result->out[1]));  // 0 times NaN
  // A key of weight 0 that is alone counts as no key; among zero keys its value is seen.
  spec.branches = {{1, 1}};
  const auto alone = ReferenceAttention(spec, ones, RowsWith(8, 1, 3, 0, -kInfinity),
                                        RowsWith(8, 1, 3, 1, kNan), {});
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->lse[3], -kInfinity);
  EXPECT_EQ(alone->out[3 * 8 + 1], 0.0);
  spec.tokens = 10;
  spec.branches = {{8, 1}};
  spec.tail = Tail::kZero;
  const std::vector<double> more(10 * 8, 1.0);
  std::vector<double> keys(10 * 8, -kInfinity);
  const auto zeros = ReferenceAttention(spec, more, keys, RowsWith(10, 1, 9, 1, kNan), {});
  ASSERT_TRUE(zeros.ok());
  EXPECT_DOUBLE_EQ(zeros->lse[8], std::log(6.0));
  EXPECT_EQ(zeros->out[8 * 8], 0.0);
  EXPECT_TRUE(std::isnan(zeros->out[8 * 8 + 1]));
}

// A branch without weight in a mix leaves no trace.
TEST(ReferenceAttention, MergesLeaveOutWhatHasNoWeight) {
  JobSpec spec = SmallSpec();
  spec.mixing = Mixing::kLse;
  spec.branches = {{4, 1}, {8, 7}};  // tokens 0 and 7 are in both
  const std::vector<double> ones(8 * 8, 1.0);
  std::vector<double> keys(8 * 8, 0.0);
  std::fill_n(keys.begin() + 8, 8, 1e4);  // key 1, in the first branch only
  const auto result = ReferenceAttention(spec, ones, keys, RowsWith(8, 1, 7, 2, kInfinity), {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->out[2], 1.0);
  EXPECT_EQ(result->out[7 * 8 + 2], kInfinity);
}

}  // namespace
}  // namespace hilbert_ring
