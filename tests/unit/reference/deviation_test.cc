#include "engine/reference/deviation.h"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "engine/reference/sample_tokens.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(SampleTokens, AreDistinctAscendingAndSeeded) {
  for (const auto& [tokens, rows] : {std::pair<int64_t, int64_t>{1, 64},
                                     {64, 64},
                                     {100, 1},
                                     {100, 2},
                                     {100, 49},
                                     {100, 99},
                                     {int64_t{1} << 40, 64}}) {
    const std::vector<int64_t> sample = SampleTokens(tokens, rows, 7);
    EXPECT_EQ(static_cast<int64_t>(sample.size()), std::min(tokens, rows));
    EXPECT_TRUE(std::is_sorted(sample.begin(), sample.end()));
    EXPECT_EQ(std::set<int64_t>(sample.begin(), sample.end()).size(), sample.size());
    EXPECT_GE(sample.front(), 0);
    EXPECT_LT(sample.back(), tokens);
    if (rows >= 2) {
      EXPECT_EQ(sample.front(), 0);
      EXPECT_EQ(sample.back(), tokens - 1);
    }
    EXPECT_EQ(sample, SampleTokens(tokens, rows, 7));
  }
  EXPECT_NE(SampleTokens(1000, 10, 1), SampleTokens(1000, 10, 2));
}

TEST(Deviation, IsOfTheNumberThatIsOffMost) {
  const JobSpec spec{.tokens = 9, .heads = 2, .kv_heads = 1, .head_dim = 8, .value_dim = 2};
  ExpectedRow expected{
      .row = {.out = {1, 2, 3, 4}, .lse = {0, -kInfinity}},
      .tolerance = {.out = {0.1, 0.1, 0.1, 0.5}, .lse = {0.1, 0}, .judged = {1, 1}}};
  const RowDeviation out = OutDeviation(spec, 7, expected, std::vector<double>{1, 2, 3.5, 4.75});
  EXPECT_EQ(out.max_error, 0.75);
  EXPECT_EQ(out.worst.token, 7);
  EXPECT_EQ(out.worst.head, 1);
  EXPECT_EQ(out.worst.dim, 0);
  EXPECT_DOUBLE_EQ(out.worst.excess, 5);
  EXPECT_EQ(LseDeviation(7, expected, std::vector<double>{0, -kInfinity}).worst.excess, 0);
  const std::vector<double> nan = {kNan, -kInfinity};
  EXPECT_EQ(LseDeviation(7, expected, nan).worst.excess, kInfinity);
  EXPECT_EQ(LseDeviation(7, expected, std::vector<double>{0, -1e30}).worst.excess, kInfinity);
  EXPECT_EQ(LseDeviation(7, expected, {}).worst.excess, 0);
  // Equal NaNs, and heads that are not judged, have no deviation.
  expected.row.lse[0] = kNan;
  EXPECT_EQ(LseDeviation(7, expected, nan).worst.excess, 0);
  expected.tolerance.judged = {0, 1};
  EXPECT_EQ(LseDeviation(7, expected, std::vector<double>{5, -kInfinity}).worst.excess, 0);
  EXPECT_EQ(OutDeviation(spec, 7, expected, std::vector<double>{9, 9, 3, 4}).worst.excess, 0);
  expected.tolerance.judged = {0, 0};
  EXPECT_EQ(OutDeviation(spec, 7, expected, std::vector<double>{9, 9, 9, 9}).worst.token, -1);
}

}  // namespace
}  // namespace hilbert_ring
