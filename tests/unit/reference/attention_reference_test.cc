#include "engine/reference/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
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

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

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
  const WatchedRows coordinates(Doubles(golden_.bias_coords), BiasAxes(spec));
  std::mt19937_64 random(3);
  for (const int64_t stored : {Permutation::kDefaultMaxStoredTokens, int64_t{0}}) {
    const auto order = Permutation::Make(spec, golden_.coords, stored);
    ASSERT_TRUE(order.ok()) << order.status();
    for (int trial = 0; trial < 40 && !HasFailure(); ++trial) {
      const int64_t token = trial == 0 ? spec.tokens - 1 : random() % spec.tokens;
      const ReferenceRow row = ReferenceAttentionRow(spec, **order, token, q, k, v, &coordinates);
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

TEST(ReferenceAttentionRow, AWindowIsCutBySegmentsAndSequences) {
  JobSpec spec = SmallSpec();
  spec.tokens = 40;
  spec.sequence_lengths = {20, 20};
  spec.branches = {{16, 1}};  // segments begin at tokens 0, 16, 20, 36
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto seen = [&](int64_t token, Window window) {
    spec.window = window;
    const NumberedRows one(1.0);
    const WatchedRows k(std::vector<double>(40 * 8, 1.0), 8);
    RowOf(spec, token, one, k, one);
    return k.read();
  };
  EXPECT_THAT(seen(25, {.left = 3, .right = 1}), ElementsAre(22, 23, 24, 25, 26));
  EXPECT_THAT(seen(25, {.left = 0, .right = 0}), ElementsAre(25));
  EXPECT_THAT(seen(21, {.left = 3, .right = 1}), ElementsAre(20, 21, 22));
  EXPECT_THAT(seen(17, {.left = 3}), ElementsAre(16, 17, 18, 19));
  EXPECT_THAT(seen(38, {.right = kMost}), ElementsAre(36, 37, 38, 39));
  EXPECT_THAT(seen(38, {.left = kMost, .right = 0}), ElementsAre(36, 37, 38));
  spec.causal = true;
  EXPECT_THAT(seen(25, {.left = 1, .right = 7}), ElementsAre(24, 25));
}

std::vector<double> Drawn(std::mt19937_64& random, int64_t numbers) {
  std::normal_distribution<double> normal;
  std::vector<double> values(numbers);
  for (double& value : values) value = normal(random);
  return values;
}

// A dense job with as many kv heads as heads and dims of 8, key by key.
ReferenceResult ByDoubleLoop(const JobSpec& spec, const std::vector<double>& q,
                             const std::vector<double>& k, const std::vector<double>& v) {
  ReferenceResult result{.out = std::vector<double>(q.size()), .lse = {}};
  for (int64_t row = 0; row < spec.tokens * spec.heads; ++row) {
    const int64_t i = row / spec.heads, head = row % spec.heads;
    double sum = spec.sinks.empty() ? 0 : std::exp(spec.sinks[head]);
    for (int64_t j = 0; j < (spec.causal ? i + 1 : spec.tokens); ++j) {
      const double* const key = k.data() + (j * spec.heads + head) * 8;
      double score = spec.Scale() * std::inner_product(key, key + 8, q.data() + row * 8, 0.0);
      if (spec.softcap) score = *spec.softcap * std::tanh(score / *spec.softcap);
      if (spec.alibi) {
        score -= spec.alibi->slopes[head] * static_cast<double>(i > j ? i - j : j - i);
      }
      sum += std::exp(score);
      for (int64_t x = 0; x < 8; ++x) {
        result.out[row * 8 + x] += std::exp(score) * v[(j * spec.heads + head) * 8 + x];
      }
    }
    for (int64_t x = 0; x < 8; ++x) result.out[row * 8 + x] /= sum;
    result.lse.push_back(std::log(sum));
  }
  return result;
}

// Positions, not slots, decide the distance.
TEST(ReferenceAttention, ChangesScoresByTheirDefinition) {
  std::mt19937_64 random(4);
  for (int kind = 0; kind < 32; ++kind) {
    JobSpec spec = SmallSpec();
    spec.tokens = 30;
    spec.heads = spec.kv_heads = 2;
    spec.branches = {{30, 1}};
    spec.mixing = Mixing::kLse;
    if ((kind & 1) != 0) spec.softcap = 0.8;
    if ((kind & 2) != 0) spec.alibi = Alibi{{0.25, -0.125}};
    if ((kind & 4) != 0) spec.sinks = {-1.0, 3.0};
    spec.causal = (kind & 8) != 0;
    if ((kind & 16) != 0) spec.ordering = Ordering{};
    const std::vector<double> q = Drawn(random, 480), k = Drawn(random, 480),
                              v = Drawn(random, 480);
    const auto actual = ReferenceAttention(spec, q, k, v, {});
    ASSERT_TRUE(actual.ok()) << actual.status();
    const ReferenceResult expected = ByDoubleLoop(spec, q, k, v);
    EXPECT_THAT(actual->out, Pointwise(DoubleNear(1e-12), expected.out)) << kind;
    EXPECT_THAT(actual->lse, Pointwise(DoubleNear(1e-12), expected.lse)) << kind;
  }
}

// A sink counts once for a row of several branches, and before outputs are averaged. Even tokens of
// the second head are in no branch if heads are grouped.
TEST(ReferenceAttention, ASinkIsALastKeyWithoutValue) {
  std::mt19937_64 random(5);
  const std::vector<double> q = Drawn(random, 128), k = Drawn(random, 128), v = Drawn(random, 128);
  JobSpec spec = SmallSpec();
  spec.heads = spec.kv_heads = 2;
  for (const Mixing mixing : {Mixing::kHeadGroups, Mixing::kLse}) {
    spec.mixing = mixing;
    spec.branches = {{8, 1}, {8, 2}};
    spec.sinks.clear();
    const auto without = ReferenceAttention(spec, q, k, v, {});
    ASSERT_TRUE(without.ok()) << without.status();
    spec.sinks = {0.5, 40.0};
    const auto with = ReferenceAttention(spec, q, k, v, {});
    ASSERT_TRUE(with.ok()) << with.status();
    for (size_t row = 0; row < with->lse.size(); ++row) {
      const double keys = std::exp(without->lse[row]), sink = std::exp(spec.sinks[row % 2]);
      EXPECT_NEAR(with->lse[row], std::log(keys + sink), 1e-12) << row;
      EXPECT_NEAR(with->out[row * 8], without->out[row * 8] * keys / (keys + sink), 1e-12) << row;
    }
  }
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
  spec.sinks = {1e6};
  const auto sunk = ReferenceAttention(spec, ones, keys, RowsWith(8, 1, 7, 2, kInfinity), {});
  ASSERT_TRUE(sunk.ok());
  EXPECT_EQ(sunk->out[7 * 8 + 2], 0.0);
  EXPECT_EQ(sunk->lse[7], 1e6);
}

TEST(ReferenceAttention, ASoftcapMakesInfiniteScoresFinite) {
  JobSpec spec = SmallSpec();
  spec.softcap = 4.0;
  const std::vector<double> ones(8 * 8, 1.0);
  for (const double infinity : {kInfinity, -kInfinity}) {
    const auto result = ReferenceAttention(spec, ones, RowsWith(8, 0, 3, 0, infinity), ones, {});
    ASSERT_TRUE(result.ok());
    EXPECT_DOUBLE_EQ(result->lse[0], std::log(7 + std::exp(infinity > 0 ? 4 : -4)));
  }
}

}  // namespace
}  // namespace hilbert_ring
