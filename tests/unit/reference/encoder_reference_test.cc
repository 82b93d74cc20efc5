#include "engine/reference/encoder_reference.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

TEST(Spread, IsTheRootMeanSquareOfAllDifferences) {
  const std::vector<TwiceComputed> rows = {{.exact = {1, 2}, .moved = {1, 2}},
                                           {.exact = {0, 0}, .moved = {3, -1}}};
  EXPECT_DOUBLE_EQ(Spread(rows), std::sqrt(10.0 / 4));
  EXPECT_EQ(Spread({}), 0);
}

TEST(Spread, LeavesOutWhatIsNotFinite) {
  const std::vector<TwiceComputed> rows = {{.exact = {1, INFINITY}, .moved = {3, INFINITY}},
                                           {.exact = {NAN, 0}, .moved = {0, NAN}}};
  EXPECT_EQ(Spread(rows), 2);
}

// Its own draw says nothing of how far off it may be.
TEST(TwiceComputed, ARowWhoseDrawIsNearByChanceIsJudgedByThoseBesideIt) {
  const TwiceComputed row{.exact = {1, -1}, .moved = {1, -1}};
  const std::vector<float> actual = {1.25F, -1};
  EXPECT_GT(row.Compare(actual, 0).excess, 1);
  EXPECT_LT(row.Compare(actual, 0.25 / kMargin).excess, 1);
  EXPECT_GT(row.Compare(actual, 0.2 / kMargin).excess, 1);
  EXPECT_EQ(row.Compare(actual, 0).dim, 0);
}

}  // namespace
}  // namespace hilbert_ring
