#include "server/job/pooled_parts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;

TEST(PooledRowsOf, CountsTheRowsOfARankThatAreSummed) {
  // Tokens 0 and 4 are class tokens.
  const SlideRows slides(std::vector<int64_t>{3, 2}, 1);
  const std::vector<ShardRange> ranges = {{.begin = 0, .end = 2}, {.begin = 3, .end = 5}};
  EXPECT_THAT(PooledRowsOf(slides, Pooling::kMean, ranges), ElementsAre(2, 0));
  EXPECT_THAT(PooledRowsOf(slides, Pooling::kClass, ranges), ElementsAre(1, 1));
  EXPECT_THAT(PooledRowsOf(slides, Pooling::kMean, {}), ElementsAre(0, 0));
}

TEST(PooledParts, OfARankAreThoseOfItsRows) {
  PooledParts parts(100);
  const std::vector<int64_t> rows = {2, 0, 5};
  EXPECT_EQ(parts.WrongOf(0, 1, rows), "sent no pooled sums of 2 of its rows of slide 0");
  EXPECT_TRUE(parts.Add(0, 1, {.first_slide = 0, .rows = {2, 0}, .sums = {}}).ok());
  EXPECT_EQ(parts.WrongOf(0, 1, rows), "sent no pooled sums of 5 of its rows of slide 2");
  EXPECT_TRUE(parts.Add(0, 1, {.first_slide = 2, .rows = {5}, .sums = {}}).ok());
  EXPECT_EQ(parts.WrongOf(0, 1, rows), "");
  EXPECT_EQ(parts.WrongOf(0, 2, rows), "sent no pooled sums of 2 of its rows of slide 0");
  EXPECT_TRUE(parts.Add(0, 1, {.first_slide = 2, .rows = {1}, .sums = {}}).ok());
  EXPECT_EQ(parts.WrongOf(0, 1, rows), "sent pooled sums of 1 rows of slide 2, must be 0 to 0");
}

}  // namespace
}  // namespace hilbert_ring::server
