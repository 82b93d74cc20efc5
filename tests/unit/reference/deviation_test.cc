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

TEST(Deviation, Tolerances) {
  EXPECT_DOUBLE_EQ(OutTolerance(DataType::kFloat32, -2, 1, 1), 2e-5 + 2e-6);
  EXPECT_DOUBLE_EQ(OutTolerance(DataType::kFloat32, 0, 1024, 1024), 0.25);
  EXPECT_DOUBLE_EQ(OutTolerance(DataType::kBFloat16, 1, 99, 2), 1.0 / 128 + 2.0 / 512);
  EXPECT_DOUBLE_EQ(OutTolerance(DataType::kFloat16, 1, 99, 2), 1.0 / 1024 + 2.0 / 4096);
  EXPECT_DOUBLE_EQ(LseTolerance(-3), 4e-5);
}

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
  const ReferenceRow expected{.out = {1, 2, 3, 4}, .lse = {0, -kInfinity}};
  const RowDeviation out = OutDeviation(spec, 7, expected, std::vector<double>{1, 2, 3.5, 4.25});
  EXPECT_EQ(out.max_error, 0.5);
  EXPECT_EQ(out.worst.token, 7);
  EXPECT_EQ(out.worst.head, 1);
  EXPECT_EQ(out.worst.dim, 0);
  EXPECT_GT(out.worst.excess, 1);
  EXPECT_EQ(LseDeviation(7, expected, std::vector<double>{0, -kInfinity}).worst.excess, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(LseDeviation(7, expected, std::vector<double>{nan, -kInfinity}).worst.excess,
            kInfinity);
  EXPECT_EQ(LseDeviation(7, expected, {}).worst.excess, 0);
}

}  // namespace
}  // namespace hilbert_ring
